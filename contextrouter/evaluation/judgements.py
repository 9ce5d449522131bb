"""Judged questions: which documents answer which question, from a file somebody wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from contextrouter.errors import Problem, SettingsError
from contextrouter.scope import SENSITIVITIES, Scope

_KEYS = ("id", "question", "text", "relevant", "kind", "answerable", "tenant", "compartments", "ceiling")


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A question and the documents that answer it, each with a grade: what `name_of` calls it."""

    id: str
    question: str
    relevant: Mapping[str, int] = {}
    kind: str = ""
    answerable: bool = True  # False: the right answer is that there is none
    scope: Scope | None = None

    @property
    def counts(self) -> bool:
        """Whether ranking can be judged by it."""
        return self.answerable and any(grade > 0 for grade in self.relevant.values())


def read(path: str, queries: str = "") -> list[Judged]:
    """The questions of a file. Raises SettingsError with every line that is wrong, or when there are none.

    A name that ends in `.jsonl` holds lines of {"question", "relevant"}: ids, or ids with grades. Beside them
    may stand "id", "kind", "answerable", and "tenant", "compartments", "ceiling" of who asks. Any other file
    is TREC's: question, 0, document, grade (or without the 0), and `queries` has the questions: lines of id,
    tab, text, or of {"id", "text"}.
    """
    lines = _lines(path)
    if path.endswith(".jsonl"):
        if queries:
            raise SettingsError(f"{path} has its questions in itself; leave the file of queries out.")
        return _found(
            _each(path, lines, lambda number, line: _judged(number, msgspec.json.decode(line))), path
        )
    if not queries:
        raise SettingsError(
            f"{path} holds judgements by the id of a question; name the file of queries, or use a .jsonl"
            " file."
        )
    grades: dict[str, dict[str, int]] = {}
    for question, document, grade in _each(path, lines, _grade):
        if question:
            grades.setdefault(question, {})[document] = grade
    texts = dict(_each(queries, _lines(queries), _query))
    if missing := [name for name in grades if name not in texts]:
        raise SettingsError(f"{queries} has no question {missing[0]!r}, which {path} judges.")
    return _found(
        [Judged(id=name, question=texts[name], relevant=found) for name, found in grades.items()], path
    )


def _lines(path: str) -> list[tuple[int, str]]:
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _each(path: str, lines: list[tuple[int, str]], read: Any) -> list[Any]:
    found, problems = [], []
    for number, line in lines:
        try:
            found.append(read(number, line))
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            problems.append(Problem(str(error), file=path, line=number))
    if problems:
        raise SettingsError(problems)
    return found


def _found(judged: list[Judged], path: str) -> list[Judged]:
    if not judged:
        raise SettingsError(f"{path} judges no question.")
    seen: set[str] = set()
    for each in judged:
        if each.id in seen:
            raise SettingsError(f"{path} has the id {each.id!r} twice.")
        seen.add(each.id)
    return judged


def _judged(number: int, row: Any) -> Judged:
    if not isinstance(row, dict):
        raise ValueError("a line is an object with `question` and `relevant`")
    if unknown := set(row) - {*_KEYS}:
        raise ValueError(f"unknown keys {sorted(unknown)}; known keys: {', '.join(_KEYS)}")
    question = row.get("question", row.get("text"))
    if not isinstance(question, str) or not question.strip():
        raise ValueError("`question` is missing, or no text")
    relevant = row.get("relevant", {})
    if isinstance(relevant, list):
        relevant = {str(id): 1 for id in relevant}
    answerable = row.get("answerable", True)
    if not isinstance(relevant, dict) or not isinstance(answerable, bool):
        raise ValueError("`relevant` is a list of ids or a table of grades, `answerable` true or false")
    scope = None
    if {"tenant", "compartments", "ceiling"} & set(row):
        rooms, ceiling = frozenset(row.get("compartments", ())), row.get("ceiling", SENSITIVITIES[0])
        scope = Scope(tenant=row.get("tenant"), compartments=rooms, ceiling=ceiling)
    return Judged(
        id=str(row.get("id", number)),
        question=question,
        relevant={str(id): int(grade) for id, grade in relevant.items()},
        kind=str(row.get("kind", "")),
        answerable=answerable,
        scope=scope,
    )


def _grade(number: int, line: str) -> tuple[str, str, int]:
    cells = line.split("\t") if "\t" in line else line.split()
    if len(cells) not in (3, 4):
        raise ValueError("a line is question, 0, document and grade, or question, document and grade")
    question, document, grade = cells[0], cells[-2], cells[-1]
    if number == 1 and not grade.lstrip("-").replace(".", "").isdigit():
        return "", "", 0  # the head line
    return question, document, int(float(grade))


def _query(number: int, line: str) -> tuple[str, str]:
    name, _, text = line.partition("\t")
    if line.lstrip().startswith("{"):
        row = msgspec.json.decode(line, type=dict[str, Any])
        name, text = str(row.get("id", number)), str(row.get("text", ""))
    if not text.strip():
        raise ValueError("a line is an id, a tab and a question")
    return name, text
