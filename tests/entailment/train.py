"""Trains the model that reads claims and writes `rag_app/answering/verification/entailment.onnx`: `python -m tests.entailment.train`.

Needs what `tests/reader/network.py` names. The weights go on from the shipped ones, which began as all-MiniLM-L6-v2. The loss is
each claim's cross-entropy, and for each passage how far a false or open claim comes before a true one.

Beside the claims that were written a program makes some: true ones negated, with a name or a figure of the passage in the
place of another, two joined, and sentences of the passage as they stand. A part of the passages has a header, as sources
have, or stands beside another passage of its organization.
"""

import argparse
import random
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from rag_app.answering import reader
from rag_app.answering.verification.entailment import (
    MODEL_FILE,
    MOST_TEXT,
    Window,
    encode_claim,
    encode_window,
)
from rag_app.retrieval.text import sentences, tokens
from tests.entailment.claims import Label, Passage, further_passages, passages
from tests.reader.network import Model, train
from tests.reader.train import MEASURED, export, shipped_weights

PASSAGES_TOGETHER, LAYERS = 5, 6
RATES, WARM_UP = (8e-5, 4e-4), 40
TRUE_WEIGHT, ORDER_WEIGHT, SMOOTHING = 1.5, 0.6, 0.02
MOST_WORDS = 30
_KINDS = (
    "faq",
    "help_page",
    "call_transcript",
    "policy",
    "listing",
    "booking",
    "market_report",
    "alert",
    "guide",
    "minutes",
)
_VERB = re.compile(
    r"\b(is|are|was|were|can|could|will|would|must|may|should|does|do|did|has|have|had)\b(?! not|n't|not)"
)
_NEGATED = re.compile(r"\b(is|are|was|were|could|would|must|should|do|does|did|has|have|had)(?:n't| not)\b")
_NEGATION = re.compile(r"\b(?:not|no|never|cannot|nobody|nothing|none|neither|without)\b|n't\b", re.IGNORECASE)
_FIGURE = re.compile(r"(?<![\w.])\d[\d,.:]*\d|\b\d\b")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-zà-ÿ]{2,}")
Pair = tuple[list[int], list[int]]


def negate(claim: str) -> str:
    """The claim negated, or without its negation; empty where the program can't.

    >>> negate("Dogs are welcome."), negate("Cats cannot come in."), negate("We open at nine.")
    ('Dogs are not welcome.', 'Cats can come in.', '')
    """
    if _NEGATION.search(claim):
        affirmed = _NEGATED.sub(r"\1", re.sub(r"\b(?:cannot|can't)\b", "can", claim))
        return affirmed if affirmed != claim else ""
    verb = _VERB.search(claim)
    if verb is None:
        return ""
    negated = "cannot" if verb[0] == "can" else f"{verb[0]} not"
    return claim[: verb.start()] + negated + claim[verb.end() :]


def exchange(claim: str, text: str) -> str:
    """The claim with a figure or a name of the text in the place of its own; empty where there is none."""
    kinds = [
        (found, others)
        for each in (_FIGURE, _NAME)
        if (found := [*each.finditer(claim)]) and (others := _others(each, claim, text))
    ]
    if not kinds:
        return ""
    found, others = random.choice(kinds)
    place = random.choice(found)
    return claim[: place.start()] + random.choice(others) + claim[place.end() :]


def _others(pattern: re.Pattern[str], claim: str, text: str) -> list[str]:
    return [each for each in pattern.findall(text) if each not in claim]


def join(claim: str, other: str) -> str:
    return f"{claim.rstrip('. ')}, and {other[:1].lower()}{other[1:]}"


def claims_of(passage: Passage) -> Iterator[tuple[str, bool]]:
    """Each claim with whether the passage states it: those that were written, and some that are made of them."""
    true, false, unstated = (passage.claims[label] for label in Label)
    yield from ((claim, True) for claim in true)
    yield from ((claim, False) for claim in (*false, *unstated))
    said = [each for each in sentences(passage.text) if 3 < len(each.split()) <= MOST_WORDS and not each.endswith("?")]
    made: list[tuple[float, str, bool]] = [
        (0.6, negate(random.choice(true)), False),
        (0.25, exchange(random.choice(true), passage.text), False),
        (0.2, join(*random.sample(true, 2)), True),
        (0.15, join(random.choice(true), random.choice((*false, *unstated))), False),
    ]
    if said:
        made += [(0.3, random.choice(said), True), (0.4, negate(random.choice(said)), False)]
    yield from ((claim, is_true) for share, claim, is_true in made if claim and random.random() < share)


def window_of(passage: Passage, others: Sequence[Passage]) -> Window:
    ids = tokens(passage.text)
    if random.random() < 0.3:
        ids = tokens(_header(passage.title)) + ids
    beside = tokens(random.choice(others).text)[: max(0, MOST_TEXT - len(ids))] if random.random() < 0.3 else []
    return Window(passage.title, tuple(ids + beside if random.random() < 0.5 else beside + ids))


def _header(title: str) -> str:
    fields = [
        f"Title: {title}",
        f"Type: {random.choice(_KINDS)}",
        f"Date: 20{random.randint(19, 26)}-0{random.randint(1, 9)}-12",
    ]
    return " | ".join(each for each in fields if random.random() < 0.6)


def inputs_of(known: Sequence[Passage]) -> list[dict[str, Any]]:
    """Some of the passages with a claim, as the model reads them."""
    chosen = random.sample([*known], min(MEASURED, len(known)))
    pairs = [(encode_claim(next(claims_of(each))[0]), encode_window(window_of(each, known))) for each in chosen]
    return [reader.as_arrays(claim, window) for claim, window in pairs]


def loss_of(model: Any, drawn: Sequence[Sequence[tuple[Pair, bool]]]) -> Any:
    odds = model.read([pair for of_passage in drawn for pair, _ in of_passage])
    true = torch.tensor([is_true for of_passage in drawn for _, is_true in of_passage])
    wanted = true * (1 - 2 * SMOOTHING) + SMOOTHING
    alone = functional.binary_cross_entropy_with_logits(odds, wanted, pos_weight=torch.tensor(TRUE_WEIGHT))
    sizes = [len(of_passage) for of_passage in drawn]
    order = [
        functional.softplus(part[~of][None, :] - part[of][:, None]).mean()
        for part, of in zip(odds.split(sizes), true.split(sizes), strict=True)
    ]
    return alone + ORDER_WEIGHT * torch.stack(order).mean()


def draw(known: Sequence[Passage]) -> Iterator[list[tuple[Pair, bool]]]:
    """Passages without end, each with its claims."""
    of: dict[str, list[Passage]] = {}
    for passage in known:
        of.setdefault(passage.of, []).append(passage)
    while True:
        for passage in random.sample(known, len(known)):
            told = encode_window(window_of(passage, of[passage.of]))
            yield [((encode_claim(claim), told), is_true) for claim, is_true in claims_of(passage)]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--minutes", type=float, default=120)
    options.add_argument("--to", type=Path, default=MODEL_FILE)
    chosen = options.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    model = Model(LAYERS)
    model.load_state_dict(shipped_weights(MODEL_FILE))
    known = passages(put_aside=False) + 2 * further_passages()
    drawn = draw(known)
    model.load_state_dict(
        train(model, RATES, WARM_UP, chosen.minutes, lambda: loss_of(model, [*islice(drawn, PASSAGES_TOGETHER)]))
    )
    export(model, chosen.to, inputs_of(known))


if __name__ == "__main__":
    main()
