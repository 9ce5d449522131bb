"""`contextrouter settings`: shows the values in effect, and the origin of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import OK, command
from contextrouter.errors import ContextRouterError
from contextrouter.runtime.masking import is_secret, mask
from contextrouter.runtime.registry import Registry
from contextrouter.settings import TABLES, Instance, Route, Settings, schema
from contextrouter.settings.sections import NAMED, SECTIONS

DEFAULTED = "default"


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One value in effect."""

    key: str
    value: Any
    origin: str


@command
def settings(settings: options.SettingsPath = options.DEFAULT, as_json: options.AsJson = False) -> int:
    """Show every value in effect and where it came from: a line of the file, the environment, or a
    default.
    """
    router = options.open_router(settings)
    values = list(effective(router.settings, router.registry))
    if as_json:
        terminal.print_json(values)
        return OK
    table = terminal.table(
        {"header": "key", "overflow": "fold"}, {"header": "value", "overflow": "fold"}, "origin"
    )
    for value in values:
        style = "dim" if value.origin == DEFAULTED else ""
        terminal.row(table, value.key, _format_value(value.value), value.origin, style=style)
    terminal.show(table, indent=0)
    return OK


def effective(settings: Settings, registry: Registry) -> Iterator[Value]:
    """Yield every value, in the order of the tables; secrets are masked."""
    for section in SECTIONS:
        yield from _struct_values(section, getattr(settings, section), settings)
    for table, kind in TABLES.items():
        for name, instance in settings.instances(kind).items():
            yield from _instance_values(f"{table}.{name}", instance, settings, registry)
    yield from _struct_values("ingest", settings.ingestion, settings)
    for table in NAMED:
        for name, struct in getattr(settings, table).items():
            yield from _struct_values(f"{table}.{name}", struct, settings)


def _struct_values(prefix: str, struct: msgspec.Struct, settings: Settings) -> Iterator[Value]:
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if isinstance(struct, Route) and field.name == "rag":
            for name, item in value.items():
                yield _value(f"{prefix}.{name}", item, settings)
        else:
            yield _value(f"{prefix}.{field.encode_name}", value, settings)


def _instance_values(
    prefix: str, instance: Instance, settings: Settings, registry: Registry
) -> Iterator[Value]:
    yield Value(
        key=f"{prefix}.use", value=instance.use, origin=settings.origins.get(f"{prefix}.use", DEFAULTED)
    )
    for value in _struct_values(prefix, instance.keys, settings):
        if value.key != f"{prefix}.use":
            yield value
    try:
        fields = registry.schema(instance.kind, instance.use) or {}
    except ContextRouterError:
        fields = {}
    for name in dict.fromkeys((*fields, *instance.options)):
        if name in fields and fields[name].pydantic:
            yield from _pydantic_values(prefix, name, fields[name], instance, settings)
            continue
        default = fields[name].default if name in fields else None
        yield _value(
            f"{prefix}.{name}",
            instance.options.get(name, None if default is schema.REQUIRED else default),
            settings,
        )


def _pydantic_values(
    prefix: str, name: str, field: schema.Field, instance: Instance, settings: Settings
) -> Iterator[Value]:
    """Yield the values inside a model, each with its key."""
    for leaf in schema.leaves(field):
        value: Any = instance.options
        present = True
        for key in (name, *leaf.path):
            present = present and isinstance(value, Mapping) and key in value
            value = value[key] if present else None
        row = _value(".".join((prefix, name, *leaf.path)), value if present else leaf.default, settings)
        hidden = leaf.secret and row.value is not None
        yield msgspec.structs.replace(
            row, value="***" if hidden else row.value, origin=row.origin if present else DEFAULTED
        )


def _value(key: str, value: Any, settings: Settings) -> Value:
    origin = settings.origins.get(key)
    if origin is None:  # a table given key by key has the origin of its first key
        origin = next(
            (source for other_key, source in settings.origins.items() if other_key.startswith(f"{key}.")),
            DEFAULTED,
        )
    return Value(
        key=key, value=_mask_value(value, is_secret(key.rpartition(".")[2]), settings.secrets), origin=origin
    )


def _mask_value(value: Any, secret: bool, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): _mask_value(item, secret or is_secret(str(key)), secrets) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_mask_value(item, secret, secrets) for item in value]
    if isinstance(value, str):
        return "***" if value and secret else mask(value, secrets)
    return value


def _format_value(value: Any) -> str:
    return "–" if value is None else msgspec.json.encode(value, enc_hook=str).decode()
