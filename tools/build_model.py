"""Build the network of the package from trained weights. Needs `onnx` and `numpy`.

- `python tools/build_model.py NETWORK` writes the network with the weights of another one of the same shape.
- `--check` compares the files of the package with their hashes, and needs no other network.

The weights come from a network with int8 matrices and a scale for each column. The same weights always give the same
bytes.
"""

from __future__ import annotations

import hashlib
import math
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, checker, helper, numpy_helper

NAME = "everkept-minilm-1"
NETWORK = "everkept_minilm_1.onnx"
MODEL = Path(__file__).resolve().parents[1] / "src" / "everkept" / "embedders" / "model"

WEIGHTS_SHA256 = "99331fee1b2f886df88c4b9e2dd3ba8fdec03b4d89931957ae54633aab60cf0c"
SHA256 = {
    NETWORK: "e4782a2181b1c572010e6783424caa76fcf725f5300e798f6f9fbacbfd2e3e9a",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}

# The shape of the network, as published beside the weights.
LAYERS = 6
HEADS = 12
WIDTH = 384
HEAD_WIDTH = WIDTH // HEADS
LAYER_NORM_EPSILON = 1e-12
POSITIONS = 256  # the table has 512, but the model was trained on texts of at most 256 pieces

OPSET = 20  # the first with Gelu
IR_VERSION = 9

# Dense layers multiply int8 by int8. The runtime rounds their input too, block by block, so that a
# vector does not depend on the other texts of its batch. Blocks of 128 lose that and are hardly faster.
CONTRIBUTED = "com.microsoft"
BLOCK = 64
ZERO = 128  # value of a byte that represents 0
BY_INTEGERS = 4  # level of accuracy: int8 products

Array = NDArray[np.generic]
Floats = NDArray[np.float32]
Weights = dict[str, Floats]


class BuildFailed(Exception):
    """A failed build. The message is for the user; nothing was written."""


def main() -> int:
    parser = ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("network", type=Path, nargs="?", help="the network with the trained weights")
    parser.add_argument("--check", action="store_true", help="compare hashes, and write nothing")
    parser.add_argument("--into", type=Path, default=MODEL, help="the folder of the files")
    options = parser.parse_args()
    if options.network is None and not options.check:
        parser.error("name the network with the weights, or pass --check")
    try:
        if options.network is not None:
            write(build(options.network), options.into, check=options.check)
        check_files(options.into)
    except BuildFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def build(network: Path) -> bytes:
    """Return the content of the network file. Raise BuildFailed if the weights are not the known ones."""
    content = network.read_bytes()
    if hashlib.sha256(content).hexdigest() != WEIGHTS_SHA256:
        raise BuildFailed(f"{network} does not have the weights of {NAME}")
    return encoder(weights_of(onnx.load_from_string(content))).SerializeToString(deterministic=True)


def write(content: bytes, folder: Path, *, check: bool) -> None:
    """Write the network, or with `check` raise BuildFailed if the one in the folder differs."""
    path = folder / NETWORK
    if check:
        if not path.is_file() or path.read_bytes() != content:
            raise BuildFailed(f"{path} is not what the weights make")
        return
    unfinished = path.with_name(f"{NETWORK}.unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def check_files(folder: Path) -> None:
    """Raise BuildFailed if a file of the model does not have its hash."""
    for name, digest in SHA256.items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise BuildFailed(f"{path} does not have the known hash")


def weights_of(network: onnx.ModelProto) -> Weights:
    """Return the weights of a network whose matrices are int8 with a scale for each column."""
    arrays = {one.name: numpy_helper.to_array(one) for one in network.graph.initializer}
    scales = {name: name.replace(".weight", ".scale") for name in arrays}
    weights: Weights = {
        name: (array * arrays[scales[name]]).T if array.dtype == np.int8 else array
        for name, array in arrays.items()
        if name.endswith((".weight", ".bias"))
    }
    # Every text is of type 0, and that row is part of each position already.
    weights["embeddings.word_embeddings.weight"] = arrays["pieces"] * arrays["pieces.scale"]
    weights["embeddings.position_embeddings.weight"] = arrays["positions"]
    weights["embeddings.token_type_embeddings.weight"] = np.zeros((1, WIDTH), np.float32)
    return weights


class Graph:
    """Operations and constants in the order of their creation, every result with a number."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: Array) -> str:
        """Return the name of a constant. Create it once; ignore the value of a known name."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(value, name)
        return name

    def integers(self, *values: int) -> str:
        return self.constant(f"integers {values}", np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self.constant(f"number {value}", np.array(value, np.float32))

    def add(self, operation: str, *inputs: str, output: str = "", **attributes: object) -> str:
        """Append an operation, and return the name of its result."""
        name = f"{operation} {len(self.nodes)}"
        output = output or name
        node = helper.make_node(operation, inputs, [output], name=name, **attributes)
        self.nodes.append(node)
        return output

    def widened(self, narrow: str, scale: str) -> str:
        return self.add("Mul", self.add("Cast", narrow, to=TensorProto.FLOAT), scale)

    def linear(self, x: str, weights: Weights, name: str) -> str:
        """Add a dense layer. Its matrix is int8 with a scale for each block, and is never widened."""
        matrix = weights[f"{name}.weight"]
        rows, columns = matrix.shape
        narrow, scale = narrowed(matrix.reshape(rows, columns // BLOCK, BLOCK), axis=2)
        return self.add(
            "MatMulNBits",
            x,
            self.constant(f"{name}.weight", (narrow.astype(np.int16) + ZERO).astype(np.uint8)),
            self.constant(f"{name}.scale", scale.reshape(-1)),
            "",  # every zero point is equal
            "",  # the columns are in their order
            self.constant(f"{name}.bias", weights[f"{name}.bias"]),
            domain=CONTRIBUTED,
            K=columns,
            N=rows,
            bits=8,
            block_size=BLOCK,
            accuracy_level=BY_INTEGERS,
        )

    def layer_norm(self, x: str, weights: Weights, name: str) -> str:
        gain = self.constant(f"{name}.weight", weights[f"{name}.weight"])
        bias = self.constant(f"{name}.bias", weights[f"{name}.bias"])
        return self.add("LayerNormalization", x, gain, bias, axis=-1, epsilon=LAYER_NORM_EPSILON)


def narrowed(matrix: Floats, axis: int) -> tuple[NDArray[np.int8], Floats]:
    """Return the matrix as int8, and the factors along the axis that approximately restore it."""
    largest = np.abs(matrix).max(axis=axis, keepdims=True)
    scale = np.where(largest > 0, largest / np.float32(127), np.float32(1)).astype(np.float32)
    return np.round(matrix / scale).astype(np.int8), scale


def encoder(weights: Weights) -> onnx.ModelProto:
    """Build the whole network, from the ids of the pieces to a vector of length one for each text."""
    graph = Graph()
    mask = graph.add("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = embeddings(graph, weights)
    bias = attention_bias(graph, mask)
    for number in range(LAYERS):
        hidden = layer(graph, weights, f"encoder.layer.{number}", hidden, bias)
    pool(graph, hidden, mask)
    return finished(graph)


def embeddings(graph: Graph, weights: Weights) -> str:
    """Add piece and position. Widen only the rows of a text, never the whole table."""
    narrow, scale = narrowed(weights["embeddings.word_embeddings.weight"], axis=1)
    pieces = graph.widened(
        graph.add("Gather", graph.constant("pieces", narrow), "input_ids"),
        graph.add("Gather", graph.constant("pieces.scale", scale), "input_ids"),
    )
    # Every text is of type 0, so that row is part of each position.
    table = weights["embeddings.position_embeddings.weight"][:POSITIONS]
    table = table + weights["embeddings.token_type_embeddings.weight"][0]
    length = graph.add("Shape", "input_ids", start=1, end=2)
    zero = graph.integers(0)
    positions = graph.add("Slice", graph.constant("positions", table), zero, length, zero)
    total = graph.add("Add", pieces, positions)
    return graph.layer_norm(total, weights, "embeddings.LayerNorm")


def attention_bias(graph: Graph, mask: str) -> str:
    """Return 0 for a piece, and a large negative number for padding, so that it has no weight."""
    absent = graph.add("Sub", graph.number(1.0), mask)
    wide = graph.add("Unsqueeze", absent, graph.integers(1, 2))
    return graph.add("Mul", wide, graph.number(-10_000.0))


def layer(graph: Graph, weights: Weights, name: str, hidden: str, bias: str) -> str:
    """Add one layer: attention between all pieces, then a dense network per piece."""
    mixed = attention(graph, weights, f"{name}.attention.self", hidden, bias)
    mixed = graph.linear(mixed, weights, f"{name}.attention.output.dense")
    mixed = graph.add("Add", mixed, hidden)
    mixed = graph.layer_norm(mixed, weights, f"{name}.attention.output.LayerNorm")
    wide = graph.add("Gelu", graph.linear(mixed, weights, f"{name}.intermediate.dense"))
    total = graph.add("Add", graph.linear(wide, weights, f"{name}.output.dense"), mixed)
    return graph.layer_norm(total, weights, f"{name}.output.LayerNorm")


def attention(graph: Graph, weights: Weights, name: str, hidden: str, bias: str) -> str:
    query = heads(graph, graph.linear(hidden, weights, f"{name}.query"), [0, 2, 1, 3])
    key = heads(graph, graph.linear(hidden, weights, f"{name}.key"), [0, 2, 3, 1])
    value = heads(graph, graph.linear(hidden, weights, f"{name}.value"), [0, 2, 1, 3])
    likeness = graph.add("MatMul", query, key)
    likeness = graph.add("Mul", likeness, graph.number(1 / math.sqrt(HEAD_WIDTH)))
    share = graph.add("Softmax", graph.add("Add", likeness, bias), axis=-1)
    seen = graph.add("Transpose", graph.add("MatMul", share, value), perm=[0, 2, 1, 3])
    return graph.add("Reshape", seen, graph.integers(0, 0, WIDTH))


def heads(graph: Graph, x: str, order: Sequence[int]) -> str:
    split = graph.add("Reshape", x, graph.integers(0, 0, HEADS, HEAD_WIDTH))
    return graph.add("Transpose", split, perm=order)


def pool(graph: Graph, hidden: str, mask: str) -> None:
    """Return the mean over the pieces without padding, scaled to length one."""
    present = graph.add("Unsqueeze", mask, graph.integers(2))
    along = graph.integers(1)
    total = graph.add("ReduceSum", graph.add("Mul", hidden, present), along, keepdims=0)
    count = graph.add("ReduceSum", present, along, keepdims=0)
    mean = graph.add("Div", total, graph.add("Max", count, graph.number(1e-9)))
    length = graph.add("ReduceL2", mean, along, keepdims=1)
    longest = graph.add("Max", length, graph.number(1e-12))
    graph.add("Div", mean, longest, output="sentence_embedding")


def finished(graph: Graph) -> onnx.ModelProto:
    texts = ["texts", "pieces"]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            NAME,
            [
                helper.make_tensor_value_info("input_ids", TensorProto.INT64, texts),
                helper.make_tensor_value_info("attention_mask", TensorProto.INT64, texts),
            ],
            [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["texts", WIDTH])],
            list(graph.constants.values()),
        ),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIBUTED, 1)],
        ir_version=IR_VERSION,
        producer_name="everkept",
    )
    checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    sys.exit(main())
