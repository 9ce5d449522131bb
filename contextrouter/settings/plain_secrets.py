"""Finds secrets that stand in settings themselves, before settings are written into another file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from contextrouter.runtime.masking import is_secret, mask
from contextrouter.settings.sections import NAMED
from contextrouter.settings.values import TABLES

_VARIABLE = r"\$\{[^}]+\}"
_ELSEWHERE = re.compile(rf"file:.+|(?:[A-Za-z-]+[:= ]\s*)*{_VARIABLE}(?:\W*{_VARIABLE})*")
"""A secret of another place: of a file, or of variables, behind words such as "Bearer" or "X-Api-Key:"."""


def secret_in(tables: Mapping[str, Any]) -> str:
    """Return the key of a secret in settings, such as `generators.g.api_key`; empty: there is none.

    A secret that `${VARIABLE}` or `file:path` names stands elsewhere. Documents of a store are no settings:
    the key `token` in their metadata names no secret.
    """
    return next(_secrets(tables), "")


def _secrets(tables: Mapping[str, Any]) -> Iterator[str]:
    for section, table in tables.items():
        if section not in {*TABLES, *NAMED} or not isinstance(table, Mapping):
            yield from _secrets_of(table, section)
            continue
        for name, instance in table.items():  # a source called "tokens" is no secret
            own = instance
            if section == "providers" and isinstance(instance, Mapping):
                own = {key: value for key, value in instance.items() if key != "documents"}
            yield from _secrets_of(own, f"{section}.{name}")


def _secrets_of(value: Any, where: str, *, is_named: bool = False) -> Iterator[str]:
    """`is_named`: the name of a key above is that of a secret."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets_of(item, f"{where}.{key}", is_named=is_named or is_secret(str(key)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets_of(item, where, is_named=is_named)
    elif isinstance(value, str) and _shows_secret(value, is_named):
        yield where


def _shows_secret(value: str, is_named: bool) -> bool:
    if _ELSEWHERE.fullmatch(value):
        return False
    rest = re.sub(_VARIABLE, "", value)
    if "://" in value:
        without_passwords = rest.replace(":@", "@")  # those of variables
        return mask(without_passwords) != without_passwords or (is_named and rest == value)
    return is_named and bool(value)
