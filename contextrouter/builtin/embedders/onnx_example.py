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
        _operator("Cast", ["input_ids"], "numbers", _integer_attribute("to", _FLOAT)),
        _operator("Unsqueeze", ["numbers", "axis"], "columns"),
        _operator("Mul", ["columns", "frequencies"], "angles"),
        _operator("Sin", ["angles"], states),
    ]
    if pooled:
        nodes.append(_operator("ReduceSum", [states, "sum_axis"], output, _integer_attribute("keepdims", 0)))
    tensors = [
        _initializer("axis", _INT64, [1], struct.pack("<q", 2)),
        _initializer("frequencies", _FLOAT, [DIMENSIONS], struct.pack(f"<{DIMENSIONS}f", *FREQUENCIES)),
    ]
    if pooled:
        tensors.append(_initializer("sum_axis", _INT64, [1], struct.pack("<q", 1)))
    shape: list[str | int] = ["texts", DIMENSIONS] if pooled else ["texts", "tokens", DIMENSIONS]
    graph = b"".join(
        [
            *(_bytes_field(1, node) for node in nodes),
            _bytes_field(2, b"example"),
            *(_bytes_field(5, tensor) for tensor in tensors),
            *(_bytes_field(11, _value_info(name, _INT64, ["texts", "tokens"])) for name in inputs),
            _bytes_field(12, _value_info(output, _FLOAT, shape)),
        ]
    )
    return _integer_field(1, 8) + _bytes_field(7, graph) + _bytes_field(8, _integer_field(2, 13))


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _integer_field(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes_field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _operator(operator: str, inputs: Sequence[str], output: str, attribute: bytes = b"") -> bytes:
    node = b"".join(_bytes_field(1, name.encode()) for name in inputs) + _bytes_field(2, output.encode())
    return node + _bytes_field(4, operator.encode()) + (_bytes_field(5, attribute) if attribute else b"")


def _integer_attribute(name: str, value: int) -> bytes:
    integer = 2
    return _bytes_field(1, name.encode()) + _integer_field(3, value) + _integer_field(20, integer)


def _initializer(name: str, kind: int, dimensions: Sequence[int], data: bytes) -> bytes:
    sizes = b"".join(_integer_field(1, size) for size in dimensions)
    return sizes + _integer_field(2, kind) + _bytes_field(8, name.encode()) + _bytes_field(9, data)


def _value_info(name: str, kind: int, dimensions: Sequence[str | int]) -> bytes:
    sizes = b"".join(
        _bytes_field(1, _integer_field(1, size) if isinstance(size, int) else _bytes_field(2, size.encode()))
        for size in dimensions
    )
    return _bytes_field(1, name.encode()) + _bytes_field(
        2, _bytes_field(1, _integer_field(1, kind) + _bytes_field(2, sizes))
    )
