"""Laws of generators: completions, token counts, JSON schemas, streams."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from contextrouter.contracts import Completion
from contextrouter.testing import measure
from contextrouter.testing.kit import Law, law
from contextrouter.testing.laws.calls import LEAVE
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject

SCHEMA = {
    "type": "object",
    "properties": {"queries": {"type": "array", "items": {"type": "string"}}},
    "required": ["queries"],
}
ENDS = ("stop", "length", "refusal", "filter", "abstained")


@law
async def answers_are_completions(subject: Subject) -> None:
    """complete() returns a Completion whose text is a str."""
    async with subject.open_plugin() as plugin:
        for messages in await subject.exercise.inputs(subject, plugin):
            completion = await plugin.complete(messages)
            if not isinstance(completion, Completion) or not isinstance(completion.text, str):
                raise Broken(f"it returned {shorten(completion)}")


@law
async def tokens_are_counts(subject: Subject) -> None:
    """`tokens_in` and `tokens_out` are whole numbers from 0, or None where they are unknown."""
    async with subject.open_plugin() as plugin:
        for messages in await subject.exercise.inputs(subject, plugin):
            completion = await plugin.complete(messages)
            for name in ("tokens_in", "tokens_out"):
                count = getattr(completion, name, None)
                if count is not None and not (isinstance(count, int) and count >= 0):
                    raise Broken(f"{name} is {count!r}")


@law
async def ends_are_known(subject: Subject) -> None:
    """`finish` is "stop", "length", "refusal", "filter" or "abstained"."""
    async with subject.open_plugin() as plugin:
        for messages in await subject.exercise.inputs(subject, plugin):
            finish = getattr(await plugin.complete(messages), "finish", "stop")
            if finish not in ENDS:
                raise Broken(f"finish is {finish!r}; it is one of {', '.join(ENDS)}")


@law
async def schema_is_answered_with_data(subject: Subject) -> None:
    """With a JSON schema, complete() returns an object with the keys that the schema requires: in `data`, or
    as its text.
    """
    async with subject.open_plugin() as plugin:
        messages = (await subject.exercise.inputs(subject, plugin))[0]
        completion = await plugin.complete(messages, schema=SCHEMA)
        data = getattr(completion, "data", None)
        if data is None:
            data = _parsed(getattr(completion, "text", ""))
        if not isinstance(data, dict) or not isinstance(data.get("queries"), list):
            raise Broken(f"a schema with the key 'queries' was answered with the data {shorten(data)}")


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None


@law
async def stream_is_a_text_in_pieces(subject: Subject) -> None:
    """stream() yields texts, and together they are not empty where the text of complete() is not."""
    async with subject.open_plugin() as plugin:
        for messages in await subject.exercise.inputs(subject, plugin):
            pieces = [piece async for piece in plugin.stream(messages)]
            text = getattr(await plugin.complete(messages), "text", "")
            if not all(isinstance(piece, str) for piece in pieces):
                raise Broken(f"it yields {shorten(pieces)}")
            if bool(text) and not "".join(pieces):
                raise Broken(f"complete() answers {shorten(text)}, the stream is empty")


@law
async def abandoned_stream_ends_at_once(subject: Subject) -> None:
    """A stream without a reader closes at once, and the generator still works."""

    async def attempt(plugin: Any) -> float:
        stream = plugin.stream((await subject.exercise.inputs(subject, plugin))[0])
        async for _ in stream:
            break
        started = asyncio.get_running_loop().time()
        await stream.aclose()
        return asyncio.get_running_loop().time() - started

    async with subject.open_plugin() as plugin:
        took = await measure.shortest(lambda: attempt(plugin), LEAVE)
        if took > LEAVE:
            raise Broken(f"closing a stream took {took:.2f} s")
        await subject.answers(plugin)


LAWS: tuple[Law, ...] = (
    answers_are_completions,
    tokens_are_counts,
    ends_are_known,
    schema_is_answered_with_data,
    stream_is_a_text_in_pieces,
    abandoned_stream_ends_at_once,
)
