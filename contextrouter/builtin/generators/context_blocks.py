"""Reads a numbered context: the blocks of documents, their sentences, tables and records, and the facts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from contextrouter.text.analysis import analyse, has_unspaced

_END = (
    r"### (?:\[\d+\] |(?:Facts|Entities|Counts|End of context)$)"  # of a block; in a document it is escaped
)
_BLOCK = re.compile(rf"^### \[(\d+)\] (.*)\n((?:(?!^{_END}).*(?:\n|\Z))*)", re.M)
_FACTS = re.compile(r"^### Facts\n((?:- .*\n?)+)", re.M)
_ENTITIES = re.compile(r"^### Entities\n((?:- .*\n?)+)", re.M)
_VALIDITY = re.compile(r" (\((?:\d{4}-\d\d-\d\d|…) to (?:\d{4}-\d\d-\d\d|…)\))$")
_FENCE = re.compile(
    r"^ {0,3}(?:(`{3,})[^`\n]*\n(?:.*?\n)?? {0,3}\1`*|(~{3,})[^\n]*\n(?:.*?\n)?? {0,3}\2~*)[ \t]*$",
    re.M | re.S,
)
_FENCED = re.compile(r"^<<<(?:untrusted|end) [0-9a-f]{16}>>>(?:\n|\Z)", re.M)
_SENTENCE = re.compile(r"[^\n.!?。！？]+(?:[.!?](?!\s|\Z)[^\n.!?。！？]*)*[.!?。！？]*[\"'”’»)]*")
_MARKUP = re.compile(r"^[\s>#*+-]+(?=\S)")
_APART = re.compile(r"\n\s*\n|\n(?=\s*(?:[#>*+|-]|\\#|\d+[.)]\s))")
_ITEM = re.compile(r"\s*(?:[*+-]|\d+[.)])\s")
_LONGEST_HEADING = 12  # words
_CELL = re.compile(r"(?<!\\)\|")
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*\)")  # only its text is quoted
_HEADING = re.compile(r"\s*\\?#{1,6} ")
_FIELD = re.compile(r"\s*([^\W\d][\w ./()-]{0,40}): (\S.*)")
_ROW = re.compile(r"\s*\|(.+)\|\s*\Z")
_RULE = re.compile(r"[\s|:-]+\Z")
_ABBREVIATION = re.compile(
    r"\b(?:[A-Z]|Dr|Mr|Mrs|Ms|St|No|vs|etc|e\.g|i\.e|cf|Prof|Jr|Sr|Inc|Ltd|Co|U\.S)\.\Z"
)
_ENDED = tuple(".!?。！？:;")
_SOURCES = re.compile(r"(?i)\s*#*\s*(?:references|bibliography|further reading|literature|works cited)\W*\Z")
_WORK_OF_AUTHOR = re.compile(r"\W*[A-Z][\w'-]+, [A-Z]\..*\b(?:19|20)\d\d\b")
_CITED_WORK = re.compile(
    r"(?i)\bdoi\b|\barxiv:|\bISBN\b|\bpp?\. ?\d+|\bvol\. ?\d+|\bet al\.,? \(?\d{4}|\bretrieved (?:on )?\w+ \d"
    r"|^\W*\[\d+\] (?-i:[A-Z])"
)


class Sentence(NamedTuple):
    """A sentence of block `number`, at `place` in it. `words` are its own, `title` those of what it stands
    under. `parts` are the fields of a row or record, by name.
    """

    number: int
    place: int
    text: str
    words: frozenset[str]
    title: frozenset[str]
    parts: tuple[tuple[str, str], ...] = ()
    heading: str = ""  # of the block
    item: bool = False  # of a list: it is no heading, even if no sign ends it


class Statement(NamedTuple):
    """A fact of the context, or an attribute of an entity. `since` is when a fact holds, in brackets."""

    subject: str
    predicate: str
    object: str
    since: str = ""


def statements_of(context: str) -> list[Statement]:
    """The facts of a context, and the attributes of its entities."""
    text = _FENCED.sub("", context)
    lines = [line.removeprefix("- ") for block in _FACTS.finditer(text) for line in block[1].splitlines()]
    parts = [_VALIDITY.sub("", line).split(" — ", 2) + _VALIDITY.findall(line) for line in lines]
    facts = [Statement(*part) for part in parts if len(part) in (3, 4)]
    for block in _ENTITIES.finditer(text):
        for line in block[1].splitlines():
            name, _, attributes = line.removeprefix("- ").partition(" — ")
            pairs = [attribute.partition(": ") for attribute in attributes.split("; ")]
            facts += [Statement(name, key, value) for key, _, value in pairs if value]
    return facts


def sentences_of(context: str) -> list[Sentence]:
    """The sentences of every block under `### [n] title`. Code, headings, the heading path and lines of a
    bibliography are left out.
    """
    sentences: list[Sentence] = []
    for block in _BLOCK.finditer(_FENCED.sub("", context)):
        sentences += _Block(int(block[1]), block[2], _FENCE.sub("", block[3])).sentences
    return sentences


class _Block:
    """The sentences of one block, as they are read."""

    def __init__(self, number: int, title: str, text: str) -> None:
        self.number, self.sentences = number, list[Sentence]()
        self._heading = title.split(" — ")[0].strip()
        self._title = frozenset(analyse(self._heading))
        self._section: frozenset[str] = frozenset()
        head, _, tail = text.strip("\n").partition("\n")
        below_title = bool(self._heading) and head.startswith(f"{self._heading} > ")
        if below_title or _could_be_path(head, tail):
            self._title |= frozenset(analyse(head))  # the heading path: it is no sentence
            text = tail
        self._read(text)

    def _read(self, text: str) -> None:
        rows: list[str] = []
        for part in _APART.split(_LINK.sub(r"\1", text)):
            if _ROW.match(part.split("\n")[0]):
                rows += part.strip().split("\n")
                continue
            self._read_table(rows)
            rows = []
            if _SOURCES.match(part):
                return  # what follows are other people's works
            if _HEADING.match(part):
                heading, _, part = part.strip().partition("\n")
                self._section = frozenset(analyse(heading))
            fields = [_FIELD.match(line) for line in part.strip().split("\n")]
            if len(fields) > 1 and all(fields):
                self._add_record([(field[1].strip(), field[2].strip()) for field in fields if field])
            else:
                self._read_prose(part)
        self._read_table(rows)

    def _read_prose(self, part: str) -> None:
        item = _ITEM.match(part) is not None
        if _WORK_OF_AUTHOR.match(" ".join(part.split())):
            return
        text = ""
        for piece in _SENTENCE.findall(" ".join(part.split())):
            text += piece
            if _ABBREVIATION.search(text):
                continue  # the sentence goes on
            self._add(text, item=item)
            text = ""
        self._add(text, item=item)

    def _add(self, text: str, parts: tuple[tuple[str, str], ...] = (), *, item: bool = False) -> None:
        bare = _MARKUP.sub("", text).strip()
        words = frozenset(analyse(bare))
        if (len(words) > 1 or has_unspaced(bare)) and not _CITED_WORK.search(bare):
            title = self._title | self._section
            place = len(self.sentences)
            self.sentences.append(
                Sentence(self.number, place, bare, words, title, parts, self._heading, item)
            )

    def _add_record(self, fields: Sequence[tuple[str, str]]) -> None:
        self._add("; ".join(f"{name}: {value}" for name, value in fields), tuple(fields))

    def _read_table(self, rows: Sequence[str]) -> None:
        cells = [
            [cell.strip().replace("\\|", "|") for cell in _CELL.split(row.strip())[1:-1]]
            for row in rows
            if not _RULE.match(row)
        ]
        for row in cells[1:]:
            fields = [(name, value) for name, value in zip(cells[0], row, strict=False) if value]
            if fields:
                self._add_record(fields)


def _could_be_path(line: str, following: str) -> bool:
    """Whether the first line of a block may be its heading path: no sentence, item, row or field, and not the
    beginning of a sentence that goes on in the next line.
    """
    if line.rstrip().endswith(_ENDED) or any(form.match(line) for form in (_ROW, _FIELD, _ITEM)):
        return False
    goes_on = following[:1].islower() or len(line.split()) > _LONGEST_HEADING
    return " > " in line or (bool(following.strip()) and not goes_on)
