"""How often the reader puts a sentence that answers first: `python -m tests.reader [EVAL]`.

Of the organizations that nothing is trained with, and, with EVAL, of the paragraphs of XQuAD
(`EVAL/xquad_en`): by the cosine alone, by the reader alone, and by both as an answer is written. For what has no answer:
the AUROC of the best sentence.
"""

import sys
from pathlib import Path

import numpy as np

from rag_app.answering.extractive import READ_WEIGHT
from rag_app.answering.reader import the_reader
from rag_app.evaluation.calibration import auroc
from rag_app.retrieval.embedding import MiniLM
from tests.gate import read
from tests.reader.questions import SECTORS, Asked, Candidate, plain, questions, questions_of, readings_of, worlds


def xquad(root: Path, embedder: MiniLM) -> list[Asked]:
    """Every fourth question, with the sentences of its paragraph."""
    asked = []
    for paragraph in read(root / "xquad_en" / "paragraphs.jsonl.gz"):
        said = readings_of(paragraph["article"].replace("_", " "), paragraph["context"])
        vectors = np.asarray(embedder.get_text_embedding_batch([f"{each.heading}: {each.text}" for each in said]))
        for question in paragraph["qas"][::4]:
            answer = plain(question["answers"][0]["text"])
            right = [answer in plain(each.text) for each in said]
            cosines = vectors @ np.asarray(embedder.get_query_embedding(question["question"]))
            found = [Candidate(*each) for each in zip(said, right, map(float, cosines), strict=True)]
            asked.append(Asked(paragraph["article"], question["question"], tuple(found)))
    return asked


def report(name: str, asked: list[Asked]) -> None:
    first: dict[str, list[bool]] = {"cosine": [], "reader": [], "both": []}
    best: dict[bool, list[float]] = {True: [], False: []}
    for one in asked:
        answers = np.asarray([each.answers for each in one.candidates])
        cosines = np.asarray([each.cosine for each in one.candidates])
        odds = the_reader().scores(one.text, [each.reading for each in one.candidates])
        best[bool(answers.any())].append(float(odds.max()))
        if answers.any():
            for by, scores in (("cosine", cosines), ("reader", odds), ("both", cosines + READ_WEIGHT * odds)):
                first[by].append(bool(answers[scores.argmax()]))
    shares = ", ".join(f"{by} {np.mean(hits):.3f}" for by, hits in first.items())
    told = f", AUROC {auroc(best[True], best[False]):.3f} of {len(best[False])} without" if best[False] else ""
    print(f"{name}: {len(first['both'])} questions, first by {shares}{told}", flush=True)


def main() -> None:
    embedder = MiniLM()
    for sector in SECTORS:
        report(sector, [each for each in questions(sector, embedder) if each.put_aside])
    further = worlds("put_aside").items()
    report("worlds", [each for name, documents in further for each in questions_of(name, documents, embedder)])
    later = [each for name, documents in worlds("later").items() for each in questions_of(name, documents, embedder)]
    report("later worlds, alone", [each for each in later if "\n" not in each.text])
    report("later worlds, after a message", [each for each in later if "\n" in each.text])
    if len(sys.argv) > 1:
        report("XQuAD", xquad(Path(sys.argv[1]), embedder))


if __name__ == "__main__":
    main()
