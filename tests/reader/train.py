"""Trains the deeper reader and writes `rag_app/answering/deeper_reader.onnx`: `python -m tests.reader.train [--further] [--minutes N]`.

Needs what `tests/reader/network.py` names. The weights begin as those of ms-marco-MiniLM-L-12-v2, or with `--further` as the
shipped ones. The rate falls to nothing until the minutes are over, and what is exported is the mean of the weights of the
last steps. Questions about rows of tables and questions without an answer are drawn oftener than their share, some questions
are misspelt or without their question mark.

One question of five follows another one, mostly about the same document, as in a conversation: what answers that one
is shown, too, and does not answer. For each question at most ten sentences compete with "none of them": the loss is the cross-entropy of that choice, plus
half of each sentence's own. So a score tells sentences apart, and means the same for every question. In the end its log-odds are
stretched so that the mean of them and the first reader's means what the first reader's alone did.
"""

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional

from rag_app.answering.reader import DEEPER_FILE, MAY_ANSWER, MODEL_FILE, as_arrays, encode_question, encode_reading
from rag_app.retrieval.embedding import MiniLM, shared_session
from tests.reader.compact import compute_in_bytes, store_in_bytes
from tests.reader.network import Model, Pair, begin, train
from tests.reader.questions import SECTORS, Asked, Candidate, questions, questions_of, worlds

QUESTIONS_TOGETHER, SENTENCES, HARD = 8, 10, 14
RATES, WARM_UP = (7e-5, 3e-4), 80
ROW_WEIGHT, NONE_WEIGHT, PLAIN_WEIGHT = 2.5, 1.2, 0.6
"""How much oftener than its share a question is drawn: about a row of a table, without an answer, in plain words."""
DRAWN = 1600
"""Questions that are drawn at once, none of them twice."""
BARE, MISSPELT = 0.25, 0.06
IN_THREADS, SAME_DOCUMENT = 0.2, 0.7
MEASURED = 500
"""Pairs that say how large the numbers in the model become."""
STRETCHED = 160
SEED = 1


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
    layers = 1 + max(int(each.split(".")[3]) for each in values if "encoder.layer." in each)
    names = Model(layers).state_dict()
    return {name: torch.tensor(values[name]) for name in names if name in values or "position_ids" not in name}


def loss_of(model: Model, asked: Sequence[Asked]) -> Any:
    """The mean of the questions' losses; their pairs are read together."""
    shown = [_shown(one) for one in asked]
    pairs = [
        (encode_question(one.text), encode_reading(each.reading))
        for one, candidates in zip(asked, shown, strict=True)
        for each in candidates
    ]
    split = model.read(pairs).split([len(each) for each in shown])
    return torch.stack([_loss(part, candidates) for part, candidates in zip(split, shown, strict=True)]).mean()


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


def stretch(model: Model, asked: Sequence[Asked]) -> None:
    """Change the head so that half of its log-odds, with half of the first reader's, are log-odds again, by a logistic fit to these
    questions: the first reader's own weight and bias are fitted first, and kept."""
    model.eval()
    session, pairs, answers = shared_session(MODEL_FILE), list[Pair](), list[bool]()
    first = list[float]()
    for one in asked:
        for each in one.candidates:
            pair = encode_question(one.text), encode_reading(each.reading)
            odds = float(session.run(None, as_arrays(*pair))[0][0])
            if odds >= MAY_ANSWER:
                pairs.append(pair)
                first.append(odds)
                answers.append(each.answers)
    with torch.no_grad():
        deeper = model.read(pairs)
    told, right = torch.tensor(first), torch.tensor(answers, dtype=torch.float)
    weight, bias = _fit(lambda by, more: by * told + more, right)
    by, more = _fit(lambda by, more: weight * (told + by * deeper + more) / 2 + bias, right)
    with torch.no_grad():
        model.head.weight.mul_(by)
        model.head.bias.mul_(by).add_(more)


def _fit(odds_of: Callable[[Any, Any], Any], right: Any) -> tuple[float, float]:
    found = torch.tensor([1.0, 0.0], requires_grad=True)
    optimizer = torch.optim.LBFGS([found], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Any:
        optimizer.zero_grad()
        missed = functional.binary_cross_entropy_with_logits(odds_of(found[0], found[1]), right)
        missed.backward()
        return missed

    optimizer.step(loss)
    return float(found[0]), float(found[1])


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


def draw(asked: Sequence[Asked]) -> Iterator[Asked]:
    """Questions without end, as people type them, some after another one of their organization."""
    of_organization: dict[str, list[Asked]] = {}
    for one in asked:
        of_organization.setdefault(one.organization, []).append(one)
    weights = np.array([weight_of(one) for one in asked])
    chance = np.random.default_rng(SEED)
    while True:
        for place in chance.choice(len(asked), min(DRAWN, len(asked)), replace=False, p=weights / weights.sum()):
            one = asked[place]
            if random.random() < IN_THREADS and "\n" not in one.text:
                one = _after(one, of_organization[one.organization])
            yield replace(one, text=_typed(one.text))


def weight_of(asked: Asked) -> float:
    answers = [each.reading.text for each in asked.candidates if each.answers]
    is_row = any(each.count(": ") > 1 and "; " in each for each in answers)
    return (ROW_WEIGHT if is_row else 1 if answers else NONE_WEIGHT) * (PLAIN_WEIGHT if asked.plain else 1)


def _after(one: Asked, others: Sequence[Asked]) -> Asked:
    same = [each for each in others if each.title == one.title and each.text != one.text]
    before = random.choice(same if same and random.random() < SAME_DOCUMENT else others)
    answers = {each.reading for each in before.candidates if each.answers}
    shown = sorted(one.candidates, key=lambda each: each.reading not in answers)
    return replace(one, text=f"{before.text}\n{one.text}", candidates=tuple(shown))


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
    options.add_argument("--minutes", type=float, default=120)
    options.add_argument("--to", type=Path, default=DEEPER_FILE)
    chosen = options.parse_args()
    random.seed(SEED)
    torch.manual_seed(SEED)
    embedder = MiniLM()
    made = [each for sector in SECTORS for each in questions(sector, embedder)]
    asked, aside = [each for each in made if not each.put_aside], [each for each in made if each.put_aside]
    asked += [each for name, rows in worlds().items() for each in questions_of(name, rows, embedder)]
    model = begin()
    if chosen.further:
        model.load_state_dict(shipped_weights(DEEPER_FILE))
    drawn = draw(asked)
    model.load_state_dict(
        train(model, RATES, WARM_UP, chosen.minutes, lambda: loss_of(model, [*islice(drawn, QUESTIONS_TOGETHER)]))
    )
    stretch(model, random.sample(aside, STRETCHED))
    export(model, chosen.to, inputs_of(asked))


if __name__ == "__main__":
    main()
