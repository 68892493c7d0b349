"""The share of claims of each label that the check keeps: `python -m tests.entailment [--all]`, over the organizations put aside.

With `--all` over the others. What is true should be kept, what is false or left open should not.
"""

import sys

from rag_app.answering.context import ContextBlock
from rag_app.answering.verification.verdict import Ground
from tests.entailment.claims import Label, passages


def main() -> None:
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
