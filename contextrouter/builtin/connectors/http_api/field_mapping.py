"""JMESPath field mapping: makes documents of the items of a JSON answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urljoin

from contextrouter.builtin.connectors.markup import SNIPPET_CHARACTERS
from contextrouter.builtin.connectors.pages.feed_parser import parse_date
from contextrouter.builtin.connectors.pages.html_text import plain_text
from contextrouter.errors import MissingDependency, SettingsError
from contextrouter.fetch import check_url
from contextrouter.model import Document

TEXTS = ("content", "id", "url", "title", "snippet", "language")
MOST_KEYS = 40
LISTS = ("labels", "keywords")


class FieldMapping:
    """The expressions of one connector. `fields` that no document has become metadata."""

    def __init__(self, results: str, fields: Mapping[str, str], kind: str, markup: bool) -> None:
        self._texts = {"results": results or "@", **{f"fields.{name}": text for name, text in fields.items()}}
        self._kind, self._markup = kind, markup
        self._paths: dict[str, Any] = {}
        self._keys: tuple[str, ...] = ()  # of the item that came last

    def open(self, more: Mapping[str, str]) -> None:
        """Compile the expressions, and `more`. Raises MissingDependency, SettingsError."""
        try:
            import jmespath
        except ImportError:
            raise MissingDependency("jmespath", "http") from None
        for name, text in {**self._texts, **more}.items():
            try:
                self._paths[name] = jmespath.compile(text)
            except jmespath.exceptions.JMESPathError as error:
                reason = str(error).splitlines()[0]
                raise SettingsError(
                    f"HttpApi.{name} {text!r} is no JMESPath expression ({reason}); see jmespath.org."
                ) from None

    def find(self, name: str, answer: Any) -> Any:
        """What an expression finds in an answer; None for nothing, or where the answer is not as the
        expression supposes.
        """
        import jmespath

        try:
            return self._paths[name].search(answer)
        except (
            jmespath.exceptions.JMESPathError,
            RecursionError,
            ArithmeticError,
            TypeError,
            ValueError,
            AttributeError,
        ):
            return None

    def items(self, answer: Any) -> list[Any] | None:
        """The items of an answer; None when there is no list where one should be. A single object is a list
        of one.
        """
        items = self.find("results", answer)
        return items if isinstance(items, list) else [items] if isinstance(items, Mapping) else None

    def unmatched(self, items: Sequence[Any]) -> set[str]:
        """The names of fields that none of the items has."""
        fields = [path for path in self._paths if path.startswith("fields.")]
        return {
            path.removeprefix("fields.")
            for path in fields
            if all(self.find(path, item) in (None, [], {}) for item in items)
        }

    def unmatched_problems(self, names: Set[str], items: int) -> Iterator[str]:
        """Yield a sentence for each field that matched in none of the items read, with the keys they have."""
        keys = ", ".join(self._keys)
        for name in sorted(names) if keys else ():
            expression = self._texts[f"fields.{name}"]
            yield (
                f"fields.{name} = {expression!r} matches nothing in {items} items; the keys of an item are"
                f" {keys}."
            )

    def document(self, item: Any, source: str) -> tuple[Document, float | None] | str:
        """The document of one item with its score, or why there is none."""
        if isinstance(item, Mapping):
            self._keys = tuple(list(item)[:MOST_KEYS])
        values = {
            path.removeprefix("fields."): self.find(path, item)
            for path in self._paths
            if path.startswith("fields.")
        }
        texts = {name: _to_text(values.pop(name, None)) for name in TEXTS}
        if self._markup:
            texts |= {name: plain_text(texts[name]) for name in ("content", "title", "snippet")}
        content = texts["content"] or texts["snippet"] or texts["title"]
        if not content.strip():
            return "an item has no content."
        url = _address(source, texts["url"])
        lists = {name: _text_values(values.pop(name, None)) for name in LISTS}
        moment, score = _moment(values.pop("updated_at", None)), values.pop("score", None)
        name = texts["id"] or url
        document = Document(
            content=content,
            id=name or sha256(f"{texts['title']}\0{content}".encode("utf-8", "replace")).hexdigest(),
            url=url,
            title=texts["title"],
            snippet=texts["snippet"] or content[:SNIPPET_CHARACTERS],
            kind=self._kind,
            language=texts["language"] or None,
            updated_at=moment,
            untrusted=True,
            labels=lists["labels"],
            keywords=lists["keywords"],
            metadata={name: value for name, value in values.items() if value is not None},
        )
        number = float(score) if isinstance(score, int | float) and not isinstance(score, bool) else None
        return document, number


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value).strip()
    return str(value) if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False)


def _text_values(value: Any) -> tuple[str, ...]:
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    texts = (str(item) for item in values if isinstance(item, str | int | float))
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def _address(source: str, url: str) -> str:
    """An http address, absolute; empty for anything else."""
    if not url:
        return ""
    try:
        return check_url(urljoin(source, url))
    except ValueError:
        return ""


def _moment(value: Any) -> datetime | None:
    """A date as a text, or in seconds or milliseconds since 1970."""
    if isinstance(value, str):
        return parse_date(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
        except (ValueError, OverflowError, OSError):
            return None
    return None
