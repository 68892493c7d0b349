"""The share of claims of each label that the check keeps: `python -m tests.entailment [--all]`, over the organizations put aside.

With `--all` over the others. What is true should be kept, what is false or left open should not. `--bars` prints the log-odds of
each label by what speaks against the claim, so that the bars (`rag_app/answering/verification/bars.py`) can be set; a file of claims
may follow it: lines of JSON with `question`, `sources` (`title`, `text`), `label` and `claim`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from rag_app.answering.context import ContextBlock
from rag_app.answering.verification.verdict import Ground
from tests.entailment.claims import Label, passages


def read_claims() -> Iterator[tuple[str, Ground, str]]:
    """Each claim with its label and what it is compared with: of the file that is named, or of the passages."""
    if sys.argv[-1].endswith(".jsonl"):
        for row in map(json.loads, Path(sys.argv[-1]).read_text().splitlines()):
            blocks = [
                ContextBlock(number, f"\nTitle: {each['title']}", each["text"])
                for number, each in enumerate(row["sources"], 1)
            ]
            yield row["label"], Ground(blocks, row["question"]), row["claim"]
        return
    for each in passages(put_aside="--all" not in sys.argv):
        ground = Ground([ContextBlock(1, f"\nTitle: {each.title}", each.text)], "")
        yield from ((label.name.lower(), ground, claim) for label in Label for claim in each.claims[label])


def print_odds() -> None:
    """The tenths of the log-odds of the claims of each label, by their doubts."""
    odds: dict[tuple[str, str], list[float]] = {}
    for label, ground, claim in read_claims():
        cited = tuple(range(1, ground.size + 1))
        doubts = " + ".join(ground.doubts_of(claim, cited, ()))
        odds.setdefault((doubts, label), []).append(ground.read_odds(claim, cited))
    for (doubts, label), those in sorted(odds.items()):
        tenths = [sorted(those)[place * (len(those) - 1) // 10] for place in range(11)]
        print(f"{doubts}: {label}, {len(those)}: {' '.join(f'{each:.1f}' for each in tenths)}")


def main() -> None:
    if "--bars" in sys.argv:
        print_odds()
        return
    kept: dict[tuple[Label, int], list[bool]] = {}
    for each in passages(put_aside="--all" not in sys.argv):
        ground = Ground([ContextBlock(1, f"\nTitle: {each.title}", each.text)], "")
        for label in Label:
            for place, claim in enumerate(each.claims[label]):
                kept.setdefault((label, place), []).append(ground.supports(claim, (1,), ()))
    for (label, place), those in kept.items():
        print(f"{label.name.lower()} {place + 1}: {sum(those)} of {len(those)} kept, {sum(those) / len(those):.2f}")


if __name__ == "__main__":
    main()
