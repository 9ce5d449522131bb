"""Schema of a settings table: the names, types and defaults of its keys.

The schema is read from the keywords of a plugin's constructor, or from the fields of a struct. So a plugin
needs no separate schema.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, Unpack, get_args, get_origin

import msgspec

from contextrouter.contracts import KINDS, FilePath, Plugin, router_keys
from contextrouter.errors import ContractError
from contextrouter.runtime.masking import is_secret
from contextrouter.settings import pydantic_types
from contextrouter.settings.suggestions import did_you_mean


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One key: its type, and its default or REQUIRED. `reference`: the kind of plugin that the key names."""

    type: Any
    default: Any = REQUIRED
    reference: str | None = None  # kind of the instance that the value names
    is_path: bool = False  # relative to the settings file
    secret: bool = False
    finite: bool = False  # neither infinite nor NaN
    pydantic: bool = False  # pydantic checks the value
    secret_keys: frozenset[str] = frozenset()  # keys inside the value whose values are secrets


Schema = Mapping[str, Field]


def struct_fields(cls: type[msgspec.Struct]) -> dict[str, Field]:
    """Return the keys of a settings section, from its struct."""
    fields = {}
    for item in msgspec.structs.fields(cls):
        default = item.default
        if default is msgspec.NODEFAULT:
            factory = item.default_factory
            default = REQUIRED if factory is msgspec.NODEFAULT else factory()
        fields[item.encode_name] = msgspec.structs.replace(
            _field(item.encode_name, item.type, default), finite=True
        )
    return fields


def constructor_fields(cls: type[Plugin], kind: str) -> dict[str, Field]:
    """Return the keys of a plugin's table, from its constructor. Raises ContractError with the broken law."""
    if cls.__init__ is object.__init__:
        return {}
    try:
        hints = typing.get_type_hints(cls.__init__, include_extras=True)
        parameters = list(inspect.signature(cls.__init__).parameters.items())[1:]
    except Exception as error:  # an annotation is code, and may fail like any
        raise ContractError(
            f"{cls.__name__}.__init__ has an annotation that cannot be resolved: {type(error).__name__}:"
            f" {error}.",
            law="typed keywords",
        ) from None
    fields: dict[str, Field] = {}
    for name, parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD and (fetch := _fetch_fields(hints.get(name))):
            fields |= fetch
            continue
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            raise ContractError(
                f"{cls.__name__}.__init__ takes *{name}. Name every keyword.", law="named keywords"
            )
        if name in router_keys(kind):
            raise ContractError(
                f"{cls.__name__}.__init__ has the keyword {name!r}. In the table of a {kind} this key"
                " belongs to the router. Rename the keyword.",
                law="router-owned keys",
            )
        if name not in hints:
            raise ContractError(
                f"{cls.__name__}.__init__ keyword {name!r} has no type. Annotate it.", law="typed keywords"
            )
        default = REQUIRED if parameter.default is parameter.empty else parameter.default
        fields[name] = _field(name, hints[name], default)
    return fields


def _fetch_fields(hint: Any) -> dict[str, Field]:
    """Return the keys of `**fetch: Unpack[FetchKeys]`, with the defaults of FetchOptions. Else none."""
    from contextrouter.fetch.options import FetchKeys, FetchOptions  # costs an import that few plugins need

    if hint != Unpack[FetchKeys]:
        return {}
    hints = typing.get_type_hints(FetchKeys, include_extras=True)
    defaults = struct_fields(FetchOptions)
    return {name: _field(name, hint, defaults[name].default) for name, hint in hints.items()}


def _field(name: str, hint: Any, default: Any) -> Field:
    if pydantic_types.is_pydantic(hint):
        return Field(
            type=hint,
            default=default,
            secret=pydantic_types.is_secret_type(hint) or (is_secret(name) and _contains_text(hint)),
            pydantic=True,
            secret_keys=pydantic_types.secret_keys(hint),
        )
    kind = _plugin_kind(hint)
    optional = type(None) in get_args(hint)
    if kind:
        hint = str | None if optional else str
    return Field(
        type=hint,
        default=default,
        reference=kind,
        is_path=_is_path(hint),
        secret=is_secret(name) and _contains_text(hint),
    )


def _plugin_kind(hint: Any) -> str | None:
    for part in (hint, *get_args(hint)):
        if isinstance(part, type) and issubclass(part, Plugin):
            return next((kind for kind, contract in KINDS.items() if issubclass(part, contract)), "provider")
    return None


def _is_path(hint: Any) -> bool:
    return hint == FilePath or any(
        _is_path(part) for part in get_args(hint) if get_origin(hint) is not Annotated
    )


def _contains_text(hint: Any) -> bool:
    return hint is str or any(_contains_text(part) for part in get_args(hint))


def convert(value: Any, field: Field) -> Any:
    """Return `value` as the field's type.

    Raises ValueError. Its message says which type is expected and which values are allowed. It never shows
    the value of a secret. A value that pydantic checks stays as it is in the settings: `construct` makes the
    object.
    """
    if field.pydantic:
        pydantic_types.validate(value, field.type, field.secret)
        return value
    if field.finite and not _is_finite(value):
        raise ValueError("a finite number is expected, not inf or nan.")
    try:
        return msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        message = str(error).replace(" - at `$", " at `").replace(" `$`", "").replace("| object`", "| table`")
        allowed = choices(field.type)
        if not allowed and isinstance(value, list) and (of_items := _item_choices(field.type)):
            allowed, value = of_items, next((item for item in value if item not in of_items), value)
        if allowed:
            hint = did_you_mean(value, map(str, allowed)) if isinstance(value, str) else ""
            names = ", ".join(map(repr, allowed))
            raise ValueError(
                f"{_describe_value(value)} is not allowed.{hint} Allowed values: {names}."
            ) from None
        if "`[...]`" in message and isinstance(value, dict):
            key = next((key for key in value if not _fits({key: value[key]}, field.type)), "")
            message = message.replace("at `[...]`", f"at {key!r}, not {value.get(key)!r}")
        suffix = "" if field.secret or isinstance(value, dict | list) else f", not {value!r}"
        raise ValueError(message[0].lower() + message[1:] + suffix + ".") from None
    except TypeError as error:
        raise ValueError(f"the type {field.type!r} cannot be read from TOML: {error}.") from None


def _fits(value: Any, hint: Any) -> bool:
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        return False
    return True


def construct(value: Any, field: Field) -> Any:
    """Return what the constructor takes for a value of the settings."""
    return pydantic_types.validate(value, field.type, field.secret) if field.pydantic else value


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(map(_is_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _describe_value(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float | bool) else f"a {type(value).__name__}"


def choices(hint: Any) -> tuple[Any, ...]:
    """Return the values that a Literal type allows. Other types have none."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        inner = [choices(part) for part in get_args(hint) if part is not type(None)]
        return tuple(value for part in inner for value in part) if all(inner) else ()
    return ()


def _item_choices(hint: Any) -> tuple[Any, ...]:
    """Return the values that the items of a list may have; other types have none."""
    return choices(get_args(hint)[0]) if get_origin(hint) in (list, tuple) else ()


def leaves(field: Field) -> list[pydantic_types.Leaf]:
    """Return the keys inside a value that pydantic checks; of another value one leaf, itself."""
    if field.pydantic:
        return list(pydantic_types.leaves(field.type, field.default, field.default is REQUIRED))
    words = f"name of a {field.reference}" if field.reference else type_name(field.type)
    required = field.default is REQUIRED
    default = None if required else msgspec.to_builtins(field.default, enc_hook=str)
    return [pydantic_types.Leaf((), words, required, default, field.secret)]


def type_name(hint: Any) -> str:
    """Return the name of the type in TOML terms."""
    if pydantic_types.is_pydantic(hint):
        return pydantic_types.describe(hint)
    if get_origin(hint) is Annotated:
        return type_name(get_args(hint)[0])
    if allowed := choices(hint):
        return " | ".join(map(repr, allowed))
    if get_origin(hint) in (Union, types.UnionType):
        return " | ".join(type_name(part) for part in get_args(hint) if part is not type(None))
    if (
        get_origin(hint) in (list, tuple, set, frozenset)
        or getattr(get_origin(hint), "__name__", "") == "Sequence"
    ):
        inner = [part for part in get_args(hint) if part is not Ellipsis]
        return f"list of {type_name(inner[0])}" if inner else "list"
    if get_origin(hint) is not None:
        return "table"
    names = {
        str: "string",
        int: "integer",
        float: "number",
        bool: "true | false",
        dict: "table",
        list: "list",
    }
    return names.get(hint, getattr(hint, "__name__", str(hint)))
