"""Keys whose types are pydantic's: checked by pydantic, one problem for each mistake, secrets masked.

pydantic is imported only when a plugin's constructor uses it, so plain annotations never load it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from contextrouter.runtime.masking import is_secret
from contextrouter.settings.suggestions import unknown

_PACKAGES = ("pydantic", "pydantic_core", "annotated_types")
_MARKS = ("__pydantic_core_schema__", "__get_pydantic_core_schema__")
_WORDS = {"string": "string", "integer": "integer", "number": "number", "boolean": "true | false"}
_FORMATS = {
    "uri": "URL",
    "password": "secret",
    "path": "path",
    "file-path": "path",
    "directory-path": "folder",
}
_LIMITS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "like {}",
}

Path = tuple[str | int, ...]
"""The way from a key's value to a part of it: keys of tables, and positions in lists from 0."""


class InvalidParts(ValueError):
    """Several parts of one value are invalid. `parts` are the paths of the parts, with a message each."""

    def __init__(self, parts: Sequence[tuple[Path, str]]) -> None:
        self.parts = tuple(parts)
        super().__init__("; ".join(message for _, message in self.parts))


class Leaf(NamedTuple):
    """A key inside a pydantic model, or a value without a model: then the path is empty."""

    path: tuple[str, ...]
    type: str
    required: bool
    default: Any
    secret: bool


def is_pydantic(hint: Any) -> bool:
    """Whether an annotation has a part that only pydantic understands."""
    if not any(package in sys.modules for package in _PACKAGES):
        return False
    return any(_is_part(part) for part in _walk(hint))


def _is_part(part: Any) -> bool:
    module = getattr(part if isinstance(part, type) else type(part), "__module__", "")
    return module.partition(".")[0] in _PACKAGES or any(hasattr(part, mark) for mark in _MARKS)


def _walk(hint: Any) -> Iterator[Any]:
    """Yield an annotation and all its parts, with the metadata of Annotated."""
    yield hint
    for part in get_args(hint):
        yield from _walk(part)


def validate(value: Any, hint: Any, secret: bool = False) -> Any:
    """Return the object that a constructor takes for a value of the settings. Raises InvalidParts.

    The types of TOML are not stretched: "5" is no number. No message shows a secret.
    """
    import json

    from pydantic import TypeAdapter, ValidationError

    parts = list(_unknown_keys(value, hint, ()))
    adapter = TypeAdapter(hint)
    try:
        text = json.dumps(value, default=_format_time)
    except TypeError:  # made in Python: the objects themselves
        text = None
    try:
        result = adapter.validate_python(value) if text is None else adapter.validate_json(text, strict=True)
    except ValidationError as error:
        secrets = {*secret_keys(hint)}
        details = error.errors(include_url=False, include_context=False)
        parts += [_problem(value, detail, secret, secrets) for detail in details]
    if parts:
        raise InvalidParts(parts)
    return result


def _format_time(value: object) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    raise TypeError


def _problem(value: Any, detail: Mapping[str, Any], secret: bool, secrets: set[str]) -> tuple[Path, str]:
    """Return the path and the message of one error of pydantic."""
    location, message = detail["loc"], str(detail["msg"]).removeprefix("Value error, ").rstrip(".")
    path = _path_in(value, location)
    if detail["type"] == "missing":
        return path, f"key {location[-1]!r} is missing. Set it."
    if detail["type"] == "extra_forbidden":
        return path, "unknown key."
    hidden = secret or any(isinstance(key, str) and (key in secrets or is_secret(key)) for key in path)
    entry = detail.get("input")
    suffix = f", not {entry!r}" if isinstance(entry, str | int | float) and not hidden else ""
    return path, message[:1].lower() + message[1:] + suffix + "."


def _path_in(value: Any, location: Sequence[str | int]) -> Path:
    """Return the parts of a location that are keys or positions of the value; others name types."""
    path: list[str | int] = []
    for part in location:
        keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        if part in keys:
            value = value[part]
            path.append(part)
    return tuple(path)


def _models(hint: Any) -> list[type]:
    """Return the pydantic models that a value itself may be, not its items."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _models(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return [model for part in get_args(hint) for model in _models(part)]
    return [hint] if isinstance(hint, type) and _fields(hint) else []


def _fields(model: type) -> dict[str, Any]:
    """Return the fields of a model, or of a dataclass of pydantic; other types have none."""
    fields = getattr(model, "__pydantic_fields__", None) or getattr(model, "model_fields", None)
    return fields if isinstance(fields, dict) else {}


def _unknown_keys(value: Any, hint: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the keys that pydantic would ignore: a misspelt key is a mistake."""
    models = _models(hint)
    if len(models) == 1 and isinstance(value, dict):
        (model,), names = models, {}
        for name, field in _fields(models[0]).items():
            aliases = [alias for alias in (field.alias, field.validation_alias) if isinstance(alias, str)]
            names.update(dict.fromkeys((*aliases, name), field.annotation))
        extra = (getattr(model, "model_config", None) or {}).get("extra", "ignore")
        for key, item in value.items():
            if key in names:
                yield from _unknown_keys(item, names[key], (*path, key))
            elif extra == "ignore":
                yield (*path, key), unknown("unknown key", key, list(names), "Known keys", quote="`")
        return
    item_hint = None if models else _item_hint(hint)
    if item_hint is not None and isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _unknown_keys(item, item_hint, (*path, key))


def _item_hint(hint: Any) -> Any:
    """Return the type of the items of a list, or of the values of a table; None for other types."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _item_hint(arguments[0])
    if origin in (Union, types.UnionType):
        return next(filter(None, map(_item_hint, arguments)), None)
    return None if not arguments else arguments[0] if origin is tuple else arguments[-1]


def secret_keys(hint: Any) -> frozenset[str]:
    """Return the names of the keys inside a model whose values are secrets."""
    names: set[str] = set()
    for part in _walk(hint):
        for name, field in _fields(part).items() if isinstance(part, type) else ():
            names |= {name} if is_secret_type(field.annotation) else secret_keys(field.annotation)
    return frozenset(names)


def is_secret_type(hint: Any) -> bool:
    """Whether a value of this type is a secret, such as SecretStr."""
    return any(
        isinstance(part, type) and part.__name__ in ("SecretStr", "SecretBytes") for part in _walk(hint)
    )


def leaves(hint: Any, default: Any, required: bool) -> Iterator[Leaf]:
    """Yield the keys of a model and of the models in it; of another type one leaf, the value itself."""
    models = _models(hint)
    if len(models) != 1:
        secret = is_secret_type(hint)
        yield Leaf((), describe(hint), required, None if required else plain(default, secret), secret)
        return
    for name, field in _fields(models[0]).items():
        value = getattr(default, name, None) if default is not None and not required else None
        absent = field.is_required() and value is None
        inner = value if value is not None or absent else field.get_default(call_default_factory=True)
        annotation = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        for leaf in leaves(annotation, inner, absent):
            yield leaf._replace(path=(field.alias or name, *leaf.path))


def plain(value: Any, secret: bool = False) -> Any:
    """Return a default as plain values; a secret is masked."""
    from pydantic_core import to_jsonable_python

    if secret and value is not None:
        return "***"
    return to_jsonable_python(value, fallback=str)


def describe(hint: Any) -> str:
    """Return a type in the words of TOML, with its limits: "integer, from 1"."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        schema = TypeAdapter(hint).json_schema()
    except PydanticUserError:  # a type without a JSON schema, such as a callable
        return getattr(hint, "__name__", str(hint))
    return _schema_words(schema, schema.get("$defs", {}))


def _schema_words(schema: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        schema = models[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        parts = [part for part in schema["anyOf"] if part.get("type") != "null"]
        return " | ".join(dict.fromkeys(_schema_words(part, models) for part in parts))
    if "enum" in schema or "const" in schema:
        return " | ".join(map(repr, schema.get("enum") or [schema["const"]]))
    kind = schema.get("type", "")
    if kind == "array":
        words = f"list of {_schema_words(schema.get('items', {}), models)}"
    elif kind == "object":
        words = "table"
    else:
        words = _FORMATS.get(schema.get("format", ""), _WORDS.get(kind, "any value"))
    limits = [text.format(schema[name]) for name, text in _LIMITS.items() if name in schema]
    if schema.get("format") == "uri":
        limits = []
    return ", ".join([words, *limits])
