"""Settings validation: checks every TOML table against its schema. Unknown keys, types, ranges of values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from contextrouter.settings import schema
from contextrouter.settings.ingestion import Ingestion, Job
from contextrouter.settings.presets import EXTENDS
from contextrouter.settings.problems import Key, Problems, dotted_key
from contextrouter.settings.pydantic_types import InvalidParts
from contextrouter.settings.reading import Reading
from contextrouter.settings.suggestions import unknown
from contextrouter.settings.telemetry import Telemetry
from contextrouter.settings.values import (
    TABLES,
    AccessKey,
    Cache,
    Chat,
    Jwt,
    Limits,
    Mcp,
    Plugins,
    Rag,
    Route,
    Selection,
    Serve,
    Settings,
)

SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    "rag": Rag,
    "cache": Cache,
    "limits": Limits,
    "plugins": Plugins,
    "selection": Selection,
    "serve": Serve,
    "chat": Chat,
    "mcp": Mcp,
    "jwt": Jwt,
    "telemetry": Telemetry,
}
NAMED: Mapping[str, type[msgspec.Struct]] = {"routes": Route, "ingest": Job, "keys": AccessKey}
OF_ALL: Mapping[str, type[msgspec.Struct]] = {"ingest": Ingestion}
"""Tables of named tables that have keys of their own, too: those that count for all."""
TOP_LEVEL = (*SECTIONS, *NAMED, *TABLES)
BEFORE_ROUTES = frozenset(
    (
        "interpreters",
        "interpret_seconds",
        "least_confidence",
        "timeout_seconds",
        "max_concurrency",
        "timezone",
        "cache_enabled",
        "cache_ttl_seconds",
    )
)
"""Keys of `[rag]` that act before the kind of a question is known."""
RETIRED: Mapping[Key, str] = {
    ("rag", "calibrate_weight"): (
        "the key is gone: calibrated values now decide between sources alone, and `keep_order` (0 to 1) says"
        " how far each source keeps its own order. Leave the key out."
    )
}
"""Keys that there were once, and what takes their place."""


def check_top_level(tree: dict[str, Any], problems: Problems) -> None:
    """Report unknown tables and keys at the top level. Remove a value that is no table from the tree."""
    for name, value in list(tree.items()):
        if name not in TOP_LEVEL:
            _add_unknown(problems, (name,), TOP_LEVEL, "table" if isinstance(value, dict) else "key")
        elif not is_table((name,), value, problems):
            del tree[name]


def is_table(key: Key, value: Any, problems: Problems) -> bool:
    """Whether `value` is a table. If it is not, report it."""
    if not isinstance(value, dict):
        problems.add(key, f"a table is expected: write [{dotted_key(key)}].")
    return isinstance(value, dict)


def read_section(reading: Reading, key: Key, table: dict[str, Any], cls: type[msgspec.Struct]) -> Any:
    """Return the section of one table, or None if a required key is missing."""
    values = table_values(reading, key, table, schema.struct_fields(cls))
    attributes = {field.encode_name: field.name for field in msgspec.structs.fields(cls)}
    try:
        return cls(**{attributes[name]: value for name, value in values.items()})
    except TypeError:
        return None  # a required key is missing, and is reported already


def read_named_sections(reading: Reading, tree: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the routes, ingestion jobs and access keys, by table and name."""
    sections: dict[str, dict[str, Any]] = {}
    for table, cls in NAMED.items():
        sections_or_none = {
            name: read_route(reading, (table, name), value)
            if cls is Route
            else read_section(reading, (table, name), value, cls)
            for name, value in _named_tables(reading, table, tree.get(table, {}))
        }
        sections[table] = {name: value for name, value in sections_or_none.items() if value is not None}
    return sections


def read_shared_keys(reading: Reading, table: str, tree: Mapping[str, Any]) -> Any:
    """Return the keys that count for all tables in `[<table>]`."""
    fields = schema.struct_fields(OF_ALL[table])
    keys = {name: value for name, value in tree.get(table, {}).items() if name in fields}
    return read_section(reading, (table,), keys, OF_ALL[table])


def _named_tables(reading: Reading, table: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the tables in a table by name. Report what is neither a table nor a key for all of them."""
    shared = list(schema.struct_fields(OF_ALL[table])) if table in OF_ALL else []
    for name, value in tree.items():
        if name in shared:
            continue
        if shared and not isinstance(value, dict):
            _add_unknown(reading.problems, (table, name), shared, "key")
        elif is_table((table, name), value, reading.problems):
            yield name, value


def route_fields() -> dict[str, schema.Field]:
    """Return the keys of a route's table: its own, and those of `[rag]`."""
    own = {name: field for name, field in schema.struct_fields(Route).items() if name != "rag"}
    rag = {name: field for name, field in schema.struct_fields(Rag).items() if name not in BEFORE_ROUTES}
    return {**rag, **own}


def read_route(reading: Reading, key: Key, table: dict[str, Any]) -> Route:
    """Return a route. Its table may have any key of `[rag]` that acts when the kind is known."""
    for name in [name for name in table if name in BEFORE_ROUTES]:
        message = (
            f"[rag] {name} acts before the kind of a question is known, so a route cannot change it. Set it"
            " in [rag]."
        )
        reading.problems.add((*key, name), message)
    table = {name: value for name, value in table.items() if name not in BEFORE_ROUTES}
    values = table_values(reading, key, table, route_fields())
    own = {name: value for name, value in values.items() if name in Route.__struct_fields__}
    return Route(**own, rag={name: value for name, value in values.items() if name not in own})


def table_values(
    reading: Reading, key: Key, table: Mapping[str, Any], fields: schema.Schema
) -> dict[str, Any]:
    """Check every value of a table. Return the valid values."""
    values = {}
    for name, value in table.items():
        value_key = (*key, name)
        if name not in fields:
            _add_unknown(reading.problems, value_key, list(fields), "key")
            continue
        secrets = fields[name].secret_keys
        resolved = reading.resolve(value, value_key, fields[name].secret, secrets)
        try:
            values[name] = _convert(reading, value_key, resolved, fields[name])
        except InvalidParts as error:
            for path, message in error.parts:
                reading.problems.add((*value_key, *path), message)
        except ValueError as error:
            reading.problems.add(value_key, str(error))
    for name, field in fields.items():
        if field.default is schema.REQUIRED and name not in table:
            message = f"key {name!r} is missing. Set it to a {schema.type_name(field.type)}."
            reading.problems.add(key, message)
    return values


def _convert(reading: Reading, key: Key, value: Any, field: schema.Field) -> Any:
    try:
        result = schema.convert(value, field)
    except ValueError as error:
        origin = reading.problems.origin(key)
        if not origin.startswith("environment variable ") or isinstance(value, str | dict | list):
            raise
        text = reading.environ.get(origin.rsplit(" ", 1)[1], "")
        try:
            result = schema.convert(text, field)  # a text field takes "007" as text
        except ValueError:
            raise error from None
    if not field.is_path or not reading.file:
        return result
    if isinstance(result, str):
        return _absolute(reading, result)
    return type(result)(_absolute(reading, path) for path in result)


def _absolute(reading: Reading, path: str) -> str:
    """Return a path as seen from the settings file. Raises ValueError for a home folder of nobody."""
    try:
        return str(reading.folder / Path(path).expanduser()) if path else path
    except RuntimeError:
        raise ValueError(
            f"{path!r} begins with a home folder that is not known. Write the whole path."
        ) from None


def _add_unknown(problems: Problems, key: Key, names: Collection[str], noun: str) -> None:
    if key[-1] == EXTENDS:
        problems.add(key, "the key stands above all tables: make it the first line of the file.")
        return
    message = RETIRED.get(key) or unknown(f"unknown {noun}", str(key[-1]), names, f"Known {noun}s", quote="`")
    problems.add(key, message)


def plugin_folders(reading: Reading, paths: Sequence[str]) -> list[Path]:
    """Return the plugin folders that exist. Report each folder that does not exist."""
    folders = []
    for index, path in enumerate(paths):
        folder = reading.folder / path
        if folder.is_dir():
            folders.append(folder)
        else:
            message = (
                f"plugin folder {str(folder)!r} does not exist. Make it, or correct the path. The path is"
                " relative to the settings file."
            )
            reading.problems.add(("plugins", "paths", index), message)
    return folders


def check_tokens(settings: Settings, problems: Problems) -> None:
    """Check that `[jwt]` says whose tokens are taken, and for whom they are made."""
    jwt = settings.jwt
    if not jwt.enabled:
        if jwt.issuer or jwt.audience:
            problems.add(("jwt",), "no keys are set, so no token is taken. Set keys_file or jwks_url.")
        return
    if jwt.keys_file and jwt.jwks_url:
        problems.add(("jwt", "jwks_url"), "the keys come from keys_file already. Keep one of the two.")
    for name in ("issuer", "audience"):
        if not getattr(jwt, name):
            message = f"the key is missing: a token of another {name} would be taken. Set it."
            problems.add(("jwt", name), message)
    parts = urlsplit(jwt.jwks_url)
    is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if jwt.jwks_url and not (parts.scheme == "https" or (parts.scheme == "http" and is_local)):
        problems.add(("jwt", "jwks_url"), "keys come over https, or from this machine. Give such an address.")


def check_proxies(settings: Settings, problems: Problems) -> None:
    """Check that `[serve] trusted_proxies` are addresses or networks."""
    for proxy in settings.serve.trusted_proxies:
        try:
            ip_network(proxy, strict=False)
        except ValueError:
            message = (
                f'{proxy!r} is no IP address and no network. Give one, such as "127.0.0.1" or "10.0.0.0/8".'
            )
            problems.add(("serve", "trusted_proxies"), message)


def check_access_keys(settings: Settings, problems: Problems) -> None:
    """Check that every access key has a hash of its own, and a scope or `unrestricted`."""
    hashes: dict[str, str] = {}
    for name, key in settings.keys.items():
        at = ("keys", name)
        if not re.fullmatch("sha256:[0-9a-f]{64}", key.hash):  # it may be the key itself: it is not shown
            message = (
                "a hash is expected, not the key: the line that `contextrouter keys new` prints. If this is"
                " the key, make a new one."
            )
            problems.add((*at, "hash"), message)
        if not key.unrestricted and key.ceiling is None:
            message = "the key has no scope. Set ceiling (and compartments), or unrestricted = true."
            problems.add(at, message)
        if key.unrestricted and (key.ceiling or key.compartments or key.tenant):
            message = (
                "with unrestricted = true, tenant, compartments and ceiling have no effect. Remove them."
            )
            problems.add(at, message)
        if key.hash in hashes:
            message = f"key {hashes[key.hash]!r} has the same hash. Make a new key for each caller."
            problems.add((*at, "hash"), message)
        hashes[key.hash] = name
