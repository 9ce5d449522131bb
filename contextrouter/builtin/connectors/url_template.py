"""URL templates: fill `{placeholders}` in URLs and texts of a request."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

from contextrouter.errors import SourceError

_STEPS = (".", "..")
_NAME = re.compile(r"\{([a-z_]+)\}")


def placeholders(template: Any) -> set[str]:
    """The names in a template: a text, or a table or list of them."""
    if isinstance(template, str):
        return set(_NAME.findall(template))
    if isinstance(template, Mapping):
        return set().union(*map(placeholders, template.values()))
    return set().union(*map(placeholders, template)) if isinstance(template, list | tuple) else set()


def is_placeholder(text: str) -> bool:
    """Whether a text is one name in braces and nothing else."""
    return _NAME.fullmatch(text) is not None


def check(template: Any, allowed: Collection[str], option: str) -> None:
    """Raise ValueError for a name that is not known."""
    unknown = sorted(placeholders(template) - set(allowed))
    if unknown:
        raise ValueError(
            f"{option} holds {{{unknown[0]}}}, which is not known; known are"
            f" {', '.join(f'{{{n}}}' for n in allowed)}."
        )


def fill_url(template: str, values: Mapping[str, Any]) -> str:
    """Fill in a URL; what is put in can end neither its place in the path nor its parameter.

    Raises SourceError where a segment of the path becomes "." or "..", which would name another path.
    """
    filled = _NAME.sub(
        lambda match: quote(str(values[match[1]]).encode("utf-8", "replace"), safe=""), template
    )
    before, after = (text.partition("?")[0].partition("#")[0].split("/") for text in (template, filled))
    for segment, filled_in in zip(before, after, strict=True):
        if segment != filled_in and unquote(filled_in).strip() in _STEPS:
            raise SourceError(
                f"{unquote(filled_in)!r} cannot stand in the path of the address: it would name another path"
            )
    return filled


def add_parameters(url: str, parameters: Mapping[str, Any]) -> str:
    """Return a URL with parameters behind those that it has."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}" if parameters else url


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """Fill in texts, also within tables and lists. A text that is one name alone becomes that value itself,
    numbers included.
    """
    if isinstance(template, str):
        alone = _NAME.fullmatch(template)
        return values[alone[1]] if alone else _NAME.sub(lambda match: str(values[match[1]]), template)
    if isinstance(template, Mapping):
        return {key: fill(value, values) for key, value in template.items()}
    return [fill(value, values) for value in template] if isinstance(template, list | tuple) else template
