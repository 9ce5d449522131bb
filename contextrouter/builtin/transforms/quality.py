"""Boilerplate removal: leaves out navigation, footers, and lines that many documents repeat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from contextrouter.builtin.shared.menus import menu_lines
from contextrouter.builtin.shared.text_segments import run_by_length
from contextrouter.contracts import Transform
from contextrouter.model import SEARCH_TEXT, Document
from contextrouter.text.analysis import atoms

_ROWS, _CELLS = 4, 1 << 21
_MARKS = re.compile(r"^[\s>*+|•·–-]+|[\s|]+$")
_LINK = re.compile(r"!?\[([^\]\n]{0,300})\]\([^)\n]{0,2000}\)")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_FOOTER = re.compile(
    r"©|\(c\) ?\d{4}|all rights reserved|privacy (?:policy|notice)|terms (?:of (?:use|service)|and"
    r" conditions)"
    r"|cookie (?:policy|settings)|(?:uses|accept) (?:all )?cookies|powered by|skip to (?:main )?content|back"
    r" to top"
    r"|subscribe to our|follow us on|share this|impressum|datenschutz|mentions légales|política de privacidad"
    r"|上一篇|下一篇|版权所有|プライバシーポリシー",
    re.I,
)
_SHORT, _TELLING = 16, 4  # most words of a footer; fewest words of a repeated line
_LONGEST = 2_000  # characters; a longer line is always content
_PROSE = ("text/markdown", "text/x-markdown", "text/plain", "text/html", "text/x-rst", "application/pdf")


class Quality(Transform):
    """Leaves boilerplate out of the search text, and drops documents that consist mostly of boilerplate.

    Boilerplate is a line of links only (navigation), a run of short entries as menus have them, or a short
    line with the words of a footer (©, cookies, privacy policy). With `repeated` of 2 or more it is also a
    line of at least four words that so many documents of the source have (disclaimers). A document is dropped
    if the share of its words that are content is below `threshold` (0 to 1). After the transform `chunk`,
    each chunk counts as a document. The share becomes `metadata["quality"]`. The shown text does not change.
    Code and data have no boilerplate.

    With `repeated`, the run first reads the whole source once more.
    """

    def __init__(self, *, threshold: float = 0.3, repeated: int = 0) -> None:
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold {threshold!r} is not between 0 and 1.")
        if repeated < 0 or repeated == 1 or repeated > 255:
            raise ValueError(
                f"repeated {repeated!r} is out of range. Give 2 to 255, or 0 to switch this off."
            )
        self.threshold, self.repeated = threshold, repeated
        self._counts = bytearray()

    @property
    def surveys(self) -> bool:
        """Whether it must see every document before the first one is transformed."""
        return self.repeated > 0

    def begin(self) -> None:
        """Reset the counts.

        They take 8 MB for a source of any size. With a million lines, the odds that a count is too high are
        below 1 : 10,000.
        """
        self._counts = bytearray(_ROWS * _CELLS) if self.repeated else bytearray()

    def survey(self, document: Document) -> None:
        """Count the lines of one document, each once."""
        for key in {_line_hash(line) for line, _ in _prose_lines(document) if _is_comparable(line)}:
            for cell in _cells(key):
                self._counts[cell] = min(self._counts[cell] + 1, 255)

    def mark(self, document: Document) -> str:
        """Return a hash of the document's repeated lines, or "". It is a part of the fingerprint."""
        hashes = {_line_hash(line) for line, _ in _prose_lines(document) if self._is_repeated(line)}
        return blake2b(b"".join(sorted(hashes)), digest_size=16).hexdigest() if hashes else ""

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the document with its quality and its search text.

        A dropped document gives nothing. If it has facts or problems, it stays without content.
        """
        content, content_words, total_words = await run_by_length(
            document.content, lambda: self._read(document)
        )
        if not total_words:
            return [document]
        quality = content_words / total_words
        if quality < self.threshold:
            return [document.replace(content="")] if document.metadata.keys() & {"facts", "problems"} else []
        metadata = {**document.metadata, "quality": round(quality, 3)}
        if quality < 1.0:
            metadata[SEARCH_TEXT] = content
        return [document.replace(metadata=metadata)]

    def _read(self, document: Document) -> tuple[str, int, int]:
        """Return the content lines, the number of their words, and the number of all words.

        Words of headings and code are not counted.
        """
        content, content_words, total_words = [], 0, 0
        lines = list(_prose_lines(document))
        menus = menu_lines([line for line, _ in lines])
        for number, (line, raw) in enumerate(lines):
            words = _count_words(line)
            noise = bool(words) and (number in menus or self._is_noise(line))
            total_words += words
            content_words += 0 if noise else words
            if not noise:
                content.append(raw)
        return "".join(content), content_words, total_words

    def _is_noise(self, line: str) -> bool:
        if len(line) > _LONGEST:
            return False
        return (
            _is_navigation(line)
            or (bool(_FOOTER.search(line)) and len(atoms(line)) <= _SHORT)
            or self._is_repeated(line)
        )

    def _is_repeated(self, line: str) -> bool:
        if not self._counts or not _is_comparable(line):
            return False
        return min(self._counts[cell] for cell in _cells(_line_hash(line))) >= self.repeated


def _prose_lines(document: Document) -> Iterator[tuple[str, str]]:
    """Yield each line without its marks, and the raw line. Headings and code have "": they always stay."""
    prose = document.media_type.partition(";")[0].strip().lower() in _PROSE
    code = ""
    for raw in document.content.splitlines(keepends=True):
        fence = _FENCE.match(raw)
        if fence and code in ("", fence[1]):
            code = "" if code else fence[1]
            yield "", raw
        elif code or not prose or raw.lstrip().startswith("#"):
            yield "", raw
        else:
            yield _MARKS.sub("", raw), raw


def _is_navigation(line: str) -> bool:
    """Whether a line has only links: two or more, or one with few words."""
    links = _LINK.findall(line)
    if not links:
        return False
    other_words = len(atoms(_LINK.sub(" ", line)))
    link_words = sum(len(atoms(text)) for text in links)
    return other_words * 4 <= link_words and (len(links) > 1 or link_words <= 3)


def _is_comparable(line: str) -> bool:
    return 8 <= len(line) <= _LONGEST and len(atoms(line)) >= _TELLING


def _count_words(line: str) -> int:
    return len(atoms(line)) if len(line) <= _LONGEST else len(line.split())


def _line_hash(line: str) -> bytes:
    return blake2b(
        " ".join(line.casefold().split()).encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


def _cells(key: bytes) -> Iterator[int]:
    """Return the cells of a key, one in each row of a count-min sketch (Cormode, Muthukrishnan 2005)."""
    return (
        row * _CELLS + int.from_bytes(key[row * 4 : row * 4 + 4], "little") % _CELLS for row in range(_ROWS)
    )
