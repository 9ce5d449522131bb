"""Structured requests: how a server with OpenAI's API is asked for an object, in one of three modes.

"schema" sends the JSON schema for the server to enforce, "object" asks for any JSON object and shows the
schema in the prompt, "prompt" shows it only. Servers differ in what they take.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from contextrouter.builtin.shared.json_in_text import parse_json

Mode = Literal["schema", "object", "prompt"]
MODES: tuple[Mode, ...] = ("schema", "object", "prompt")
"""Best first."""
_PROMPT = (
    "Answer with one JSON object and nothing else: no fence, no explanation. It follows this JSON schema:\n"
)


def modes_from(mode: Mode) -> tuple[Mode, ...]:
    """Return the modes to try, from the one that the server took last."""
    return MODES[MODES.index(mode) :]


def response_format(mode: Mode, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the option of a request that asks for an object."""
    if mode == "schema":
        shape = {"name": "answer", "schema": dict(schema), "strict": False}
        return {"response_format": {"type": "json_schema", "json_schema": shape}}
    return {"response_format": {"type": "json_object"}} if mode == "object" else {}


def with_schema(
    messages: Sequence[Mapping[str, str]], mode: Mode, schema: Mapping[str, Any]
) -> Sequence[Mapping[str, str]]:
    """Return the messages; where the server does not read the schema, the first system message shows it."""
    if mode == "schema":
        return messages
    note = _PROMPT + json.dumps(schema, ensure_ascii=False)
    if messages and messages[0]["role"] == "system":  # some servers take one system message only
        head = {**messages[0], "content": f"{messages[0]['content']}\n\n{note}"}
        return [head, *messages[1:]]
    return [{"role": "system", "content": note}, *messages]


def object_in(text: str) -> dict[str, Any] | None:
    """Return the object that a text is; None: it is none as it stands."""
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
