"""Structured output of language models: asks for an object of a shape, and reads it from whatever comes.

Lenient in form, strict in meaning. Each way in which an answer can fail has its own reason, so that a note
says which it was. Shapes are pydantic models, made in functions: pydantic is loaded when a model is asked.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from contextrouter.builtin.shared.json_in_text import json_texts, parse_json
from contextrouter.contracts import Completion, Generator
from contextrouter.errors import ContextRouterError, MissingDependency, PluginError

if TYPE_CHECKING:
    from pydantic import BaseModel

    Shape = TypeVar("Shape", bound=BaseModel)

Reason = Literal["refusal", "filtered", "cut off", "empty", "no JSON", "wrong shape", "transport"]

_SENTENCES: Mapping[Reason, str] = {
    "refusal": "the model refused to answer",
    "filtered": "a content filter stopped the answer",
    "cut off": "the answer ends before its object does: the limit of its length was reached",
    "empty": "the answer is empty",
    "no JSON": "the answer holds no JSON object",
    "wrong shape": "the answer is no object of the shape that was asked for",
    "transport": "no answer came",
}
_ENDS: Mapping[str, Reason] = {"refusal": "refusal", "filter": "filtered"}
_WRAPPERS = frozenset("answer data output response result".split())
_DEEPEST = 3  # wrappers around an object
_LONGEST = 1_000_000  # characters of an answer; no object that is asked for is longer
_SHOWN = 200  # characters of a reason's detail


class AnswerError(PluginError):
    """A model gave no object of the shape. `reason` says which way it failed, the message says more."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        self.reason: Reason = reason
        detail = " ".join(detail.split())[:_SHOWN].rstrip(".")
        super().__init__(f"{reason}: {_SENTENCES[reason]}" + (f" ({detail})." if detail else "."))


async def ask(
    generator: Generator,
    messages: Sequence[Mapping[str, str]],
    shape: type[Shape],
    *,
    seconds: float | None = None,
) -> Shape:
    """Ask `generator` for an object of `shape`, and return it validated.

    `seconds` bounds the whole call, whatever the generator tries in it. Raises AnswerError, and
    MissingDependency without pydantic.
    """
    check_pydantic()
    try:
        async with asyncio.timeout(seconds):
            completion = await generator.complete(messages, schema=schema_of(shape))
    except TimeoutError:
        late = f"none within {seconds:g} seconds" if seconds is not None else "the time was over"
        raise AnswerError("transport", late) from None
    except Exception as error:
        # The chain is cut: a client's exception may carry the request and with it a key.
        in_words = isinstance(error, ContextRouterError)
        raise AnswerError(
            "transport", str(error) if in_words else f"{type(error).__name__}: {error}"
        ) from None
    return read_answer(completion, shape)


def check_pydantic() -> None:
    """Raise MissingDependency where pydantic is not installed."""
    if importlib.util.find_spec("pydantic") is None:
        raise MissingDependency("pydantic", "openai", what="Reading the objects of a language model")


def schema_of(shape: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a shape, without titles and descriptions that pydantic made up."""
    return _without_titles(shape.model_json_schema())


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    made_up = (
        ("title", "description") if properties else ("title",)
    )  # a class describes itself, not its values
    plain = {key: value for key, value in schema.items() if key not in made_up}
    if isinstance(properties, dict):
        plain["properties"] = {name: _without_titles(part) for name, part in properties.items()}
    for key in ("anyOf", "items", "$defs"):
        part = plain.get(key)
        if key == "$defs" and isinstance(part, dict):
            plain[key] = {name: _without_titles(definition) for name, definition in part.items()}
        elif isinstance(part, list):
            plain[key] = [_without_titles(choice) for choice in part]
        elif isinstance(part, dict):
            plain[key] = _without_titles(part)
    return plain


def read_answer(completion: Completion, shape: type[Shape]) -> Shape:
    """Return the object of `shape` that a completion holds: its `data`, or JSON in its text. Raises
    AnswerError.
    """
    if completion.finish in _ENDS:
        raise AnswerError(_ENDS[completion.finish], completion.text)
    reader = _Reader(shape)
    text = completion.text if isinstance(completion.text, str) else ""
    if len(text) > _LONGEST:
        raise AnswerError("wrong shape", f"it has {len(text):,} characters")
    cut = completion.finish == "length"
    if completion.data is not None and not cut:  # of a cut answer, data may hold a part
        fitting: Shape | None = reader.fit(completion.data)
        if fitting is not None:
            return fitting
    for part in json_texts(text):
        fitting = reader.read(part)
        if fitting is not None:
            return fitting
    if cut:
        raise AnswerError("cut off")
    if reader.problem:
        raise AnswerError("wrong shape", reader.problem)
    raise AnswerError("no JSON" if text.strip("\ufeff \t\r\n") else "empty")


class _Reader:
    """Tries values as the object of one shape. `problem` says why the first of them is none."""

    def __init__(self, shape: type[Shape]) -> None:
        self._shape, self.problem = shape, ""
        properties = schema_of(shape).get("properties", {})
        self._names = frozenset(properties)
        self._lists = [name for name, part in properties.items() if _is_list(part)]

    def read(self, text: str) -> Any:
        """Return the object in a JSON text; None: it is none."""
        if not text.startswith(("{", "[")):
            return None
        try:
            value = parse_json(text)
        except json.JSONDecodeError:
            return None
        except ValueError as error:  # JSON that could mean two things, or nothing
            self.problem = self.problem or str(error)
            return None
        return self.fit(value)

    def fit(self, value: Any, depth: int = 0) -> Any:
        """Return the object that a value is, holds as a wrapper, or is the one list of; else None."""
        if isinstance(value, list):
            if len(self._lists) == 1 and (fitting := self._validate({self._lists[0]: value})) is not None:
                return fitting
            inner = value if len(value) == 1 and isinstance(value[0], dict) else []
        elif not isinstance(value, dict):
            self.problem = self.problem or f"a {type(value).__name__} in place of an object"
            return None
        elif self._names.intersection(value):
            return self._validate(value)
        else:
            inner = [member for key, member in value.items() if _is_wrapped(key, member)]
            if not inner:
                keys = ", ".join(map(repr, list(value)[:5])) or "none"
                self.problem = self.problem or f"its keys are {keys}"
        if len(inner) != 1:
            return None
        if depth == _DEEPEST:
            self.problem = self.problem or "too many wrappers around it"
            return None
        return self.fit(inner[0], depth + 1)

    def _validate(self, value: dict[str, Any]) -> Any:
        from pydantic import ValidationError

        try:
            return self._shape.model_validate(value)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(map(str, problem["loc"]))
            self.problem = self.problem or f"{place}: {problem['msg']}"
        except RecursionError:
            self.problem = self.problem or "it is nested too deeply"
        return None


def _is_wrapped(key: str, value: Any) -> bool:
    """Whether a member may be the object that its own object only wraps. Under any name but these, a list is
    something else.
    """
    return isinstance(value, dict) or (isinstance(value, list) and key.casefold() in _WRAPPERS)


def _is_list(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "array" or any(
        choice.get("type") == "array" for choice in schema.get("anyOf", ())
    )


def whole_number(value: Any) -> int | None:
    """Return a number that is whole, a float or a text as well; None for anything else, such as true."""
    if isinstance(value, str):
        try:
            value = float(value) if "." in value else int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None
