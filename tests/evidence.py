"""Whether the evidence reaches the model: `python -m tests.evidence tests/answers/tuning.jsonl [CORPUS...]`.

The sample corpora are loaded into the configured deployment (RAG_HOME), every question of the file is asked over its
own route, and a model by script repeats the first source of its prompt. A turn has its evidence where the context of a
prompt holds each fact that its answer must have, or an answer without a model, which is computed from records, has them.
"""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_app.application import open_application
from rag_app.console.answers import ask_threads
from rag_app.console.demo import load_samples
from rag_app.database.urls import DatabaseUrls, database_urls
from rag_app.domain.resources import resource_folder
from rag_app.evaluation.answer_facts import Outcome, Thread, Turn, normalise
from rag_app.evaluation.judgments import read_jsonl
from rag_app.settings import Settings
from tests.integration.unlimited import lift
from tests.scripted_model import Reply, Request, ScriptedModel

_BLOCK = re.compile(r"^\[Source \d+\][^\n]*\n([^\n]*)\n---\n((?:>[^\n]*(?:\n|$))*)", re.MULTILINE)
_ASKED = re.compile(r"^(?:=== CURRENT USER QUERY ===$|Question: )", re.MULTILINE)
_REPEATED = 400  # characters of the first source


@dataclass(frozen=True)
class Judged:
    """A turn that has an answer, and whether its evidence was in a prompt: "held", "missing", or "unasked"."""

    corpus: str
    kind: str
    outcome: str
    id: str
    text: str


def context_of(prompt: str) -> list[str]:
    """The blocks of a prompt, each its header and its text.

    >>> context_of("[Source 1] (Relevance: 50.0%)\\nTitle: Prices\\n---\\n> A cut is $40.\\n\\nQuestion: How much?")
    ['Title: Prices\\nA cut is $40.']
    """
    return [
        f"{header}\n{re.sub('^> ?', '', body, flags=re.MULTILINE)}".strip() for header, body in _BLOCK.findall(prompt)
    ]


def repeating(body: dict[str, Any]) -> Reply:
    """The beginning of the first source, cited."""
    blocks = context_of("\n".join(str(message["content"]) for message in body["messages"]))
    said = " ".join(blocks[0].partition("\n")[2].split())[:_REPEATED].rstrip(".!? ") if blocks else ""
    return Reply(f"{said} [Source 1]." if said else "I don't have enough information to answer this question.")


def holds(turn: Turn, prompts: Sequence[str]) -> bool:
    """Whether the context of one of these prompts has every fact."""
    contexts = [normalise("\n".join(context_of(prompt))) for prompt in prompts]
    return any(all(any(normalise(each) in text for each in fact) for fact in turn.must) for text in contexts)


def prompts_of(turn: Turn, requests: Sequence[Request]) -> list[str]:
    """Those that ask this; earlier questions of a conversation stand above the last heading."""
    asked = "\n".join(turn.text.split())
    return [each.prompt for each in requests if asked in "\n".join(_ASKED.split(each.prompt)[-1].split())]


async def measure(
    settings: Settings, urls: DatabaseUrls, threads: Sequence[Thread], model: ScriptedModel
) -> list[Judged]:
    """Every turn that has an answer, in order."""
    judged: list[Judged] = []
    async with open_application(settings, urls) as application:
        if await load_samples(application):
            raise RuntimeError("the sample corpora could not be read")
        for name in ("mila@aurora.example", "jonas@birch.example"):
            await application.people.set_plan(await application.people.user(name), "growth")
        for thread in threads:
            model.requests.clear()
            scored = await ask_threads(application, [thread], None, None, None, lambda _: None)
            for place, (turn, told) in enumerate(zip(thread.turns, scored, strict=True)):
                if turn.must and not turn.refuse:
                    prompts = prompts_of(turn, model.requests)
                    computed = not prompts and told.outcome is Outcome.HELPED
                    outcome = "held" if computed or holds(turn, prompts) else "missing" if prompts else "unasked"
                    kind = "opening" if len(thread.turns) > 1 and place == 0 else thread.kind
                    judged.append(Judged(thread.corpus, kind, outcome, f"{thread.id}/{place + 1}", turn.text))
    return judged


def table(judged: Sequence[Judged]) -> str:
    """Counts and shares by corpus and kind, then the turns whose evidence did not reach the model."""
    groups: dict[str, list[str]] = {}
    for each in judged:
        for name in (each.corpus, f"{each.corpus} {each.kind}", f"all {each.kind}", "all"):
            groups.setdefault(name, []).append(each.outcome)
    lines = [
        f"{name:<28} {len(outcomes):>4} {outcomes.count('held') / len(outcomes):>7.1%} held"
        f" {outcomes.count('missing'):>4} missing {outcomes.count('unasked'):>4} unasked"
        for name, outcomes in sorted(groups.items())
    ]
    lines += [f"{each.outcome:<8} {each.id}: {each.text}" for each in judged if each.outcome != "held"]
    return "\n".join(lines)


def main(path: Path, *corpora: str) -> None:
    threads = [
        each
        for each in read_jsonl(path, Thread)
        if (resource_folder("indexes") / each.corpus).is_dir() and (not corpora or each.corpus in corpora)
    ]
    with ScriptedModel(repeating) as model, tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "models.toml")
        entry = f'[models.default]\nkind = "openai_like"\nmodel = "repeating"\napi_base = "{model.url}"\n'
        file.write_text(entry + 'api_key_env = "SCRIPTED_MODEL_KEY"\n')
        os.environ |= {"RAG_MODELS_FILE": str(file), "SCRIPTED_MODEL_KEY": "sk-scripted"}
        lift()
        settings = Settings()
        with database_urls(settings) as urls:
            print(table(asyncio.run(measure(settings, urls, threads, model))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
