"""What the gate does to questions with and without an answer: `python -m tests.gate EVAL [--write] [--every N]`.

EVAL holds `clapnq/` (answerable.jsonl.gz, unanswerable.jsonl.gz) and `xquad_en/` (paragraphs.jsonl.gz). Each question is
asked of the real retriever with the bundled embedder. A fit of one half of the questions is measured on the other, both
ways round: over all collections together ("shipped"), drawn from that towards each collection ("own"), as
`rag-app calibrate --org` does it, and over all other collections ("others"), as for a corpus that nobody has judged.
`--write` writes the fits of all questions into `indexes/`. `--every 3` asks a third of the questions of CLAP-NQ, XQuAD,
`swapped` and `facts`: of all of them the whole takes half an hour on two cores.

The collections: the passages of CLAP-NQ, with their answerable and unanswerable questions; every second article of
XQuAD, with the questions of all; `swapped`, where a name or a figure of a question about these articles is another one;
`facts`, where the sentence that answers is taken out of its passage, or not; `firms`, small organizations, with questions
as customers ask them, half of them about what the documents do not say (tests/answers/firms.jsonl); `organizations`,
those that the reader was not trained with (tests/reader), with half of their questions or an eighth; the sample corpora, with their judgments. Nothing is fitted to
two more, which are measured alone: the first turns of tests/answers/tuning.jsonl, and `threads`, conversations of three
turns (tests/reader/threads), of which each turn is looked for as a conversation does.
"""

import asyncio
import gzip
import json
import random
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from msgspec.structs import replace

from rag_app.answering.capabilities import capability_for
from rag_app.answering.restating import go_on
from rag_app.application import Application, open_application
from rag_app.console.demo import load_samples
from rag_app.database.urls import DatabaseUrls, database_urls
from rag_app.domain import InvalidInput, Question, resource_folder
from rag_app.evaluation.calibration import AskedQuestion, auroc, fit_gate
from rag_app.retrieval.confidence import FIT_FILE, Fit, shipped_fit
from rag_app.retrieval.text import sentences
from rag_app.settings import Settings
from rag_app.surfaces.lexybrain.messages import asked_before, cited_before
from rag_app.surfaces.lexybrain.types import PastMessage, Role
from rag_app.surfaces.library.rag import question_of, scope_of, target_of
from tests.reader.questions import SECTORS, put_aside, threads_of, worlds
from tests.remembered import remember

KNOWLEDGE = "org_knowledge"
WEIGHTS = {
    "clapnq": 100,
    "xquad": 60,
    "swapped": 100,
    "facts": 100,
    "firms": 300,
    "organizations": 200,
    "samples": 300,
}
"""How much each collection counts in the shipped fit, in questions."""
THINNED = ("clapnq", "xquad", "swapped", "facts")
VALIDATION = "tuning"
_OWN_WEIGHT = 150
"""How much more an index's own judgments count in its fit."""
_NAME = re.compile(r"(?<!^)(?<![.?!] )\b[A-Z][a-z]+(?: (?:of |the )?[A-Z][a-z]+)*\b")


@dataclass(frozen=True)
class Case:
    """One question. `half` is 0 or 1, the same for a question wherever it is asked, and for all turns of an organization's
    threads. `thread` is the one that it belongs to, whose turns come one after the other."""

    collection: str
    index: str
    organization: str
    text: str
    answerable: bool
    id: str
    user: str | None = None
    site: str | None = None
    thread: str = ""

    @property
    def half(self) -> int:
        return sha256((self.organization if self.thread else self.id).encode()).digest()[0] % 2

    @property
    def place(self) -> int:
        return locate(self.id)


def locate(id_: str) -> int:
    return sha256(id_.encode()).digest()[1]


def read(path: Path) -> list[Any]:
    packed = path.read_bytes()
    text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode()
    return [json.loads(line) for line in text.split("\n") if line]


def clapnq(root: Path) -> tuple[list[dict[str, str]], list[Case]]:
    documents: dict[tuple[str, str], str] = {}
    cases = []
    for kind in ("answerable", "unanswerable"):
        for row in read(root / f"clapnq/{kind}.jsonl.gz"):
            for passage in row["passages"]:
                documents.setdefault((passage["title"], passage["text"]), f"clapnq-{len(documents)}")
            cases.append(Case("clapnq", KNOWLEDGE, "clapnq", row["question"], kind == "answerable", row["id"]))
    return [{"id": name, "title": title, "text": text} for (title, text), name in documents.items()], cases


def xquad(root: Path) -> tuple[list[dict[str, str]], list[Case]]:
    paragraphs = read(root / "xquad_en/paragraphs.jsonl.gz")
    inside = {*list(dict.fromkeys(each["article"] for each in paragraphs))[::2]}
    corpus = [_paragraph(each, f"{each['article']}-{each['n']}") for each in paragraphs if each["article"] in inside]
    cases = [
        Case("xquad", KNOWLEDGE, "xquad", question["question"], each["article"] in inside, question["id"])
        for each in paragraphs
        for question in each["qas"]
    ]
    return corpus, cases


def swapped(root: Path) -> list[Case]:
    """The questions on the articles inside, half of them with a name exchanged for one of another article, or a figure
    for another one."""
    paragraphs = read(root / "xquad_en/paragraphs.jsonl.gz")
    inside = {*list(dict.fromkeys(each["article"] for each in paragraphs))[::2]}
    draw = random.Random(5)
    names = [
        (each["article"], name)
        for each in paragraphs
        for question in each["qas"]
        for name in _NAME.findall(question["question"])
    ]
    cases = []
    for each in paragraphs:
        for number, question in enumerate(each["qas"]):
            if each["article"] not in inside:
                continue
            if number % 2:
                cases.append(Case("swapped", KNOWLEDGE, "xquad", question["question"], True, question["id"]))
                continue
            others = [name for article, name in names if article != each["article"] and name not in each["context"]]
            if text := _swapped(question["question"], others, draw):
                cases.append(Case("swapped", KNOWLEDGE, "xquad", text, False, question["id"]))
    return cases


def _swapped(text: str, names: Sequence[str], draw: random.Random) -> str:
    """Empty where a question has neither a name nor a figure."""
    if found := [*_NAME.finditer(text)]:
        one = draw.choice(found)
        alike = [name for name in names if len(name.split()) == len(one[0].split())]
        return f"{text[: one.start()]}{draw.choice(alike)}{text[one.end() :]}" if alike else ""
    if figure := re.search(r"\b\d+\b", text):
        return f"{text[: figure.start()]}{int(figure[0]) + draw.choice([3, 9, 14])}{text[figure.end() :]}"
    return ""


def firms() -> tuple[dict[str, list[dict[str, str]]], list[Case]]:
    """The documents of each organization, and the questions in English."""
    folder = Path(__file__).parent / "answers"
    documents: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in read(folder / "firms.jsonl"):
        documents[row["organization"]].append({name: row[name] for name in ("id", "title", "text")})
    cases = [
        Case(
            "firms" if row["language"] == "en" else row["language"],
            KNOWLEDGE,
            row["organization"],
            row["text"],
            not row["refuse"],
            row["id"],
        )
        for row in read(folder / "firms_questions.jsonl")
    ]
    return documents, cases


def organizations() -> tuple[dict[str, list[dict[str, str]]], list[Case]]:
    """Those put aside: their documents; half of the questions to one of each sector, an eighth of those to the others."""
    chosen = {name: (rows, 2) for name, rows in map(put_aside, SECTORS)}
    chosen |= {name: (rows, 8) for name, rows in worlds("put_aside").items()}
    documents: dict[str, list[dict[str, str]]] = {}
    cases = []
    for name, (rows, share) in chosen.items():
        documents[name] = [
            {"id": f"{name}-{number}", "title": each["title"], "text": each["text"]} for number, each in enumerate(rows)
        ]
        for number, each in enumerate(rows):
            for place, question in enumerate(each["questions"]):
                id_, answerable = f"{name}-{number}-{place}", bool(question["evidence"])
                if locate(id_) % share == 0:
                    cases.append(Case("organizations", KNOWLEDGE, name, question["q"], answerable, id_))
    return documents, cases


def conversations() -> tuple[dict[str, list[dict[str, str]]], list[Case]]:
    """The documents of the organizations that threads are about, and their turns in order."""
    documents: dict[str, list[dict[str, str]]] = {}
    cases = []
    for sector in SECTORS:
        for name, (rows, threads) in threads_of(sector).items():
            documents[name] = [
                {"id": f"{name}-{number}", "title": each["title"], "text": each["text"]}
                for number, each in enumerate(rows)
            ]
            for number, turns in enumerate(threads):
                thread = f"{name}-thread-{number}"
                for place, turn in enumerate(turns):
                    whose = name, turn["q"], bool(turn["evidence"]), f"{thread}-{place}"
                    cases.append(Case("threads", KNOWLEDGE, *whose, thread=thread))
    return documents, cases


def facts(root: Path) -> Iterator[tuple[str, str, dict[str, str], dict[str, str]]]:
    """Id, question, its passage, and the passage without the sentences that answer."""
    for row in read(root / "clapnq/answerable.jsonl.gz"):
        passage = row["passages"][0]
        gold = {text.strip() for answer in row["answers"] for text in answer.get("selected_sentences", ())}
        rest = [text for text in passage["sentences"] if text.strip() not in gold]
        if gold and rest:
            whole = {"id": f"fact-{row['id']}", "title": passage["title"], "text": passage["text"]}
            yield row["id"], row["question"], whole, {**whole, "text": " ".join(rest)}
    for paragraph in read(root / "xquad_en/paragraphs.jsonl.gz"):
        said = sentences(paragraph["context"])
        for question in paragraph["qas"]:
            rest = [text for text in said if question["answers"][0]["text"] not in text]
            if len(rest) > 1 and len(rest) == len(said) - 1:
                whole = _paragraph(paragraph, f"fact-{question['id']}")
                yield question["id"], question["question"], whole, {**whole, "text": " ".join(rest)}
                break


def _paragraph(paragraph: dict[str, Any], name: str) -> dict[str, str]:
    return {"id": name, "title": paragraph["article"].replace("_", " "), "text": paragraph["context"]}


def samples(indexes: Iterable[str]) -> Iterator[Case]:
    for index in indexes:
        for row in read(resource_folder("indexes") / index / "judgments.jsonl"):
            whose = row["organization"], row["text"], bool(row["sources"]), row["id"], row.get("user"), row.get("site")
            yield Case("samples", index, *whose)
        for row in read(Path(__file__).parent / "answers/tuning.jsonl"):
            if row["corpus"] == index:
                first = row["turns"][0]
                whose = row["organization"], first["text"], not first["refuse"], row["id"], row["user"], row["site"]
                yield Case(VALIDATION, index, *whose)


async def load(application: Application, name: str, corpus: Sequence[dict[str, str]], folder: Path) -> None:
    file = folder / name / "corpus.jsonl"
    file.parent.mkdir()
    file.write_text("".join(f"{json.dumps(each)}\n" for each in corpus), "utf-8")
    with suppress(InvalidInput):  # it is there already
        await application.people.create_organization(name, name)
    target = await target_of(application, name, None, None, None, {})
    ingestor = await application.ingestor(application.indexes[KNOWLEDGE], target)
    print(name, await ingestor.ingest([file], base=file.parent), flush=True)


async def gather(application: Application, cases: Sequence[Case]) -> list[AskedQuestion]:
    """The signals of each question, as its index's capability would have them."""
    asked, said = [], dict[str, list[PastMessage]]()
    for done, case in enumerate(cases):
        scope = await scope_of(application, case.organization, case.user, case.site)
        capability = capability_for(case.index)
        question = question_of(case.text, capability.top_k, "hybrid", [])
        if case.thread:
            question = following(question, said.setdefault(case.thread, []))
        engine = application.pipeline.engine(capability.name, question, scope)
        evidence = await engine.gather(question)
        asked.append(AskedQuestion(evidence.judgment.signals, case.answerable))
        if case.thread:
            cited = [{"id": str(each.source_id), "cited": number} for number, each in enumerate(evidence.hits[:1])]
            said[case.thread] += [
                PastMessage(uuid4(), Role.USER, case.text),
                PastMessage(uuid4(), Role.ASSISTANT, "", retrieved_source_ids=cited),
            ]
        if done % 500 == 0:
            print(f"{done} of {len(cases)} questions", flush=True)
    return asked


def following(question: Question, history: Sequence[PastMessage]) -> Question:
    """The question as the next message of a conversation, which takes what is nearest for what was cited."""
    asked = go_on(question, asked_before(history))
    return replace(asked, earlier=cited_before(history)) if asked.searched or asked.also else asked


async def ask_all(root: Path, home: Path, urls: DatabaseUrls, every: int) -> tuple[list[Case], list[AskedQuestion]]:
    with tempfile.TemporaryDirectory() as scratch, remember(home):
        async with open_application(Settings(), urls) as application:
            assert await load_samples(application) == []
            cases = [*samples(application.indexes)]
            for name, (corpus, asked) in {"clapnq": clapnq(root), "xquad": xquad(root)}.items():
                await load(application, name, corpus, Path(scratch))
                cases += asked
            cases += swapped(root)
            for documents, asked in (firms(), organizations(), conversations()):
                for name, corpus in documents.items():
                    await load(application, name, corpus, Path(scratch))
                cases += asked
            asked_of = [each for each in facts(root) if locate(each[0]) % every == 0]
            ids, texts, whole, cut = (list(each) for each in zip(*asked_of, strict=True))
            for name, corpus, holds in (("facts-in", whole, True), ("facts-out", cut, False)):
                await load(application, name, corpus, Path(scratch))
                cases += [
                    Case("facts", KNOWLEDGE, name, text, holds, id_) for id_, text in zip(ids, texts, strict=True)
                ]
            cases = [case for case in cases if case.collection not in THINNED or case.place % every == 0]
            return cases, await gather(application, cases)


def weighted(cases: Sequence[Case], asked: Sequence[AskedQuestion], index: str | None = None) -> list[AskedQuestion]:
    """Each collection with its weight, half of it for each kind of question; the judgments of `index` with more."""
    counts: dict[tuple[str, bool], int] = defaultdict(int)
    own: dict[bool, int] = defaultdict(int)
    for case in cases:
        counts[case.collection, case.answerable] += 1
        own[case.answerable] += (case.collection, case.index) == ("samples", index)
    return [
        replace(
            each,
            weight=WEIGHTS[case.collection] / counts[case.collection, case.answerable]
            + _OWN_WEIGHT * ((case.collection, case.index) == ("samples", index)) / max(1, own[case.answerable]),
        )
        for case, each in zip(cases, asked, strict=True)
        if case.collection in WEIGHTS
    ]


def without(
    cases: Sequence[Case], asked: Sequence[AskedQuestion], collection: str
) -> tuple[list[Case], list[AskedQuestion]]:
    kept = [(case, each) for case, each in zip(cases, asked, strict=True) if case.collection != collection]
    return [case for case, _ in kept], [each for _, each in kept]


def pick(
    cases: Sequence[Case], asked: Sequence[AskedQuestion], **fields: object
) -> tuple[list[Case], list[AskedQuestion]]:
    chosen = [
        (case, each)
        for case, each in zip(cases, asked, strict=True)
        if all(getattr(case, name) == value for name, value in fields.items())
    ]
    return [case for case, _ in chosen], [each for _, each in chosen]


def row(name: str, fit: str, measured: Sequence[tuple[Fit, Sequence[AskedQuestion]]]) -> str:
    """Figures of the two halves, their mean: AUROC; what each threshold does, in per cent; accepted at 5 % refused."""
    figures = []
    for used, asked in measured:
        good = np.array([used.probability(each.signals) for each in asked if each.answerable])
        bad = np.array([used.probability(each.signals) for each in asked if not each.answerable])
        at_five = bad >= np.sort(good)[int(0.05 * len(good))]
        thresholds = used.ask_from, used.answer_from, used.high
        shares = [100 * each for level in thresholds for each in ((good < level).mean(), (bad >= level).mean())]
        figures.append([auroc([*good], [*bad]), 100 * at_five.mean(), *shares])
    area, five, *shares = np.mean(figures, axis=0)
    cells = " | ".join(f"{refused:.0f} / {accepted:.0f}" for refused, accepted in zip(*[iter(shares)] * 2, strict=True))
    return f"| {name} | {fit} | {area:.3f} | {five:.0f} | {cells} |"


def measure(cases: Sequence[Case], asked: Sequence[AskedQuestion], model: str) -> None:
    """% of the answerable refused / % of the unanswerable accepted, at each threshold."""
    print("| collection | fit | AUROC | accepted at 5 % refused | ask from | answer from | high |")
    print("|---|---|---|---|---|---|---|")
    halves = [pick(cases, asked, half=half) for half in (0, 1)]
    shipped = [fit_gate(weighted(*half), model) for half in halves]
    for name in WEIGHTS:
        parts = [pick(*half, collection=name)[1] for half in halves]
        others = [fit_gate(weighted(*without(*half, name)), model) for half in halves]
        print(row(name, "others", [(others[0], parts[1]), (others[1], parts[0])]))
        print(row(name, "shipped", [(shipped[0], parts[1]), (shipped[1], parts[0])]))
        own = [fit_gate(part, model, prior) for part, prior in zip(parts, shipped, strict=True)]
        print(row(name, "own", [(own[0], parts[1]), (own[1], parts[0])]), flush=True)
    whole = fit_gate(weighted(cases, asked), model)
    for name in (VALIDATION, "threads", "de"):
        print(row(name, "shipped", [(whole, pick(cases, asked, collection=name)[1])]))
    in_files, _ = shipped_fit(resource_folder("indexes"), KNOWLEDGE, model)
    print(row("threads", "in files", [(in_files, pick(cases, asked, collection="threads")[1])]))


def write(cases: Sequence[Case], asked: Sequence[AskedQuestion], model: str) -> None:
    general = fit_gate(weighted(cases, asked), model)
    files = {resource_folder("indexes") / FIT_FILE: general}
    for index in sorted({case.index for case in cases}):
        files[resource_folder("indexes") / index / FIT_FILE] = fit_gate(weighted(cases, asked, index), model)
    for file, fit in files.items():
        file.write_text(f"{fit.model_dump_json(indent=2)}\n", "utf-8")


def main(root: Path, *options: str) -> int:
    with tempfile.TemporaryDirectory() as home, database_urls(Settings()) as urls:
        every = int(options[options.index("--every") + 1]) if "--every" in options else 1
        cases, asked = asyncio.run(ask_all(root, Path(home), urls, every))
    model = "all-MiniLM-L6-v2-int8"
    measure(cases, asked, model)
    if "--write" in options:
        write(cases, asked, model)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
