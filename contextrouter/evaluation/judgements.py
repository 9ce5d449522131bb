"""Relevance judgements (qrels): read from a file which documents answer which question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from contextrouter.errors import Problem, SettingsError
from contextrouter.scope import SENSITIVITIES, Scope

T = TypeVar("T")
_KEYS = ("id", "question", "text", "relevant", "kind", "answerable", "tenant", "compartments", "ceiling")
_OF_EXAMPLES = ("answer", "ground_truth")  # what the examples of `[chat]` read in the same file


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and the grade of each document that answers it. `retrieval.name_of` names the documents."""

    id: str
    question: str
    relevant: Mapping[str, int] = {}
    kind: str = ""
    answerable: bool = True  # False: the right answer is that there is none
    scope: Scope | None = None

    @property
    def counts(self) -> bool:
        """Whether the question can measure a ranking: it has a relevant document."""
        return self.answerable and any(grade > 0 for grade in self.relevant.values())


def read(path: str, queries: str = "") -> list[Judged]:
    """Return the questions of a file. Raises SettingsError with every wrong line, or without questions.

    A `.jsonl` file has lines of {"question", "relevant"}; `relevant` are ids, or ids with grades. Optional:
    "id", "kind", "answerable", and the caller's "tenant", "compartments" and "ceiling". Answers, as the
    examples of `[chat]` have them, are not measured.

    Any other file is in TREC's format: question, 0, document, grade (the 0 is optional). Then the file
    `queries` has the questions: lines of id, tab, text, or of {"id", "text"}.
    """
    lines = _read_lines(path)
    if path.endswith(".jsonl"):
        if queries:
            raise SettingsError(f"{path} has its questions in itself; leave the file of queries out.")
        return _check_ids(_parse(path, lines, _parse_judgement), path)
    if not queries:
        raise SettingsError(
            f"{path} holds judgements by the id of a question; name the file of queries, or use a .jsonl"
            " file."
        )
    grades: dict[str, dict[str, int]] = {}
    for question, document, grade in _parse(path, lines, _parse_grade):
        if question:
            grades.setdefault(question, {})[document] = grade
    texts = dict(_parse(queries, _read_lines(queries), _parse_query))
    if absent := [name for name in grades if name not in texts]:
        raise SettingsError(f"{queries} has no question {absent[0]!r}, which {path} judges.")
    return _check_ids(
        [Judged(id=id, question=texts[id], relevant=relevant) for id, relevant in grades.items()], path
    )


def _read_lines(path: str) -> list[tuple[int, str]]:
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _parse(path: str, lines: list[tuple[int, str]], parse_line: Callable[[int, str], T]) -> list[T]:
    """Return the parsed lines. Raises SettingsError with every line that cannot be parsed."""
    results: list[T] = []
    problems: list[Problem] = []
    for number, line in lines:
        try:
            results.append(parse_line(number, line))
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            problems.append(Problem(str(error), file=path, line=number))
    if problems:
        raise SettingsError(problems)
    return results


def _check_ids(judged: list[Judged], path: str) -> list[Judged]:
    if not judged:
        raise SettingsError(f"{path} judges no question.")
    ids: set[str] = set()
    for question in judged:
        if question.id in ids:
            raise SettingsError(f"{path} has the id {question.id!r} twice.")
        ids.add(question.id)
    return judged


def _parse_judgement(number: int, line: str) -> Judged:
    row = msgspec.json.decode(line)
    if not isinstance(row, dict):
        raise ValueError("a line is an object with `question` and `relevant`")
    if unknown := set(row) - {*_KEYS, *_OF_EXAMPLES}:
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


def _parse_grade(number: int, line: str) -> tuple[str, str, int]:
    cells = line.split("\t") if "\t" in line else line.split()
    if len(cells) not in (3, 4):
        raise ValueError("a line is question, 0, document and grade, or question, document and grade")
    question, document, grade = cells[0], cells[-2], cells[-1]
    if number == 1 and not grade.lstrip("-").replace(".", "").isdigit():
        return "", "", 0  # a header line has no grade
    return question, document, int(float(grade))


def _parse_query(number: int, line: str) -> tuple[str, str]:
    name, _, text = line.partition("\t")
    if line.lstrip().startswith("{"):
        row = msgspec.json.decode(line, type=dict[str, Any])
        name, text = str(row.get("id", number)), str(row.get("text", ""))
    if not text.strip():
        raise ValueError("a line is an id, a tab and a question")
    return name, text
