"""A tiny sentence model in ONNX for the example of `onnx`: a token's state is the sines of its number."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

DIMENSIONS = 8
FREQUENCIES = tuple(0.1 + 0.37 * number for number in range(DIMENSIONS))
"""State `k` of a token with the number `n` is sin(n x FREQUENCIES[k])."""
_TOKENIZER = Path(__file__).parents[2] / "data" / "static" / "tokenizer.json"
_FLOAT, _INT64 = 1, 7


def write_model(folder: Path) -> None:
    """Write `model.onnx` and `tokenizer.json`."""
    (folder / "model.onnx").write_bytes(model_bytes())
    (folder / "tokenizer.json").write_bytes(_TOKENIZER.read_bytes())


def model_bytes(inputs: Sequence[str] = ("input_ids",), output: str = "last_hidden_state") -> bytes:
    """Return a model, as the fields of `onnx.proto` have it. Of its inputs it reads `input_ids`.

    An output called "sentence_embedding" is the sum over a text's tokens, one vector for each text.
    """
    pooled = output == "sentence_embedding"
    states = "states" if pooled else output
    nodes = [
        _node("Cast", ["input_ids"], "numbers", _attribute("to", _FLOAT)),
        _node("Unsqueeze", ["numbers", "axis"], "columns"),
        _node("Mul", ["columns", "frequencies"], "angles"),
        _node("Sin", ["angles"], states),
    ]
    if pooled:
        nodes.append(_node("ReduceSum", [states, "sum_axis"], output, _attribute("keepdims", 0)))
    tensors = [
        _tensor("axis", _INT64, [1], struct.pack("<q", 2)),
        _tensor("frequencies", _FLOAT, [DIMENSIONS], struct.pack(f"<{DIMENSIONS}f", *FREQUENCIES)),
    ]
    if pooled:
        tensors.append(_tensor("sum_axis", _INT64, [1], struct.pack("<q", 1)))
    shape: list[str | int] = ["texts", DIMENSIONS] if pooled else ["texts", "tokens", DIMENSIONS]
    graph = b"".join(
        [
            *(_field(1, node) for node in nodes),
            _field(2, b"example"),
            *(_field(5, tensor) for tensor in tensors),
            *(_field(11, _value(name, _INT64, ["texts", "tokens"])) for name in inputs),
            _field(12, _value(output, _FLOAT, shape)),
        ]
    )
    return _number(1, 8) + _field(7, graph) + _field(8, _number(2, 13))


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _node(operator: str, inputs: Sequence[str], output: str, attribute: bytes = b"") -> bytes:
    node = b"".join(_field(1, name.encode()) for name in inputs) + _field(2, output.encode())
    return node + _field(4, operator.encode()) + (_field(5, attribute) if attribute else b"")


def _attribute(name: str, value: int) -> bytes:
    integer = 2
    return _field(1, name.encode()) + _number(3, value) + _number(20, integer)


def _tensor(name: str, kind: int, dimensions: Sequence[int], data: bytes) -> bytes:
    sizes = b"".join(_number(1, size) for size in dimensions)
    return sizes + _number(2, kind) + _field(8, name.encode()) + _field(9, data)


def _value(name: str, kind: int, dimensions: Sequence[str | int]) -> bytes:
    sizes = b"".join(
        _field(1, _number(1, size) if isinstance(size, int) else _field(2, size.encode()))
        for size in dimensions
    )
    return _field(1, name.encode()) + _field(2, _field(1, _number(1, kind) + _field(2, sizes)))
