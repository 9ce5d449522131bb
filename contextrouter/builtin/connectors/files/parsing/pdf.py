"""PDF text extraction, by pdfminer: the text boxes of its layout analysis, page by page."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from contextrouter.builtin.connectors.files.parsing.media import PDF
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable, only_images

FEW_LETTERS = 30
"""A page with fewer letters than this has no text of its own: a stamp, a page number."""
COVERED = 0.4
"""Share of a page that an image covers where the page is an image."""
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u00ad]\s*\n\s*(?=[^\W\d_A-Z])")


def read(data: bytes) -> Parsed:
    """The text of a PDF, paragraphs parted by blank lines. Raises Unreadable for one that is encrypted or
    holds no text.
    """
    from pdfminer.pdfdocument import PDFDocument, PDFPasswordIncorrect
    from pdfminer.pdfparser import PDFParser

    logging.getLogger("pdfminer").setLevel(logging.ERROR)
    try:
        document = PDFDocument(PDFParser(BytesIO(data)))
    except PDFPasswordIncorrect:
        raise Unreadable("is encrypted; save it without a password.") from None
    text, starts, images = "", [], []
    for number, (page, is_image) in enumerate(_pages(document)):
        if number:
            text += "\n\n"
        starts.append(len(text))
        text += "\n\n".join(page)
        images += [number + 1] if is_image else []
    if not text.strip():
        raise Unreadable(
            f"holds no text on its {len(starts)} pages; a scan has to go through character recognition first."
        )
    metadata: dict[str, Any] = {"page_starts": starts}
    problems = []
    if images:
        metadata["pages_without_text"] = images
        said = only_images("page", images, len(starts))
        problems.append(f"{said}; a scan has to go through character recognition first.")
    return Parsed(text=text, media_type=PDF, title=_title(document), metadata=metadata, problems=problems)


def _pages(document: Any) -> Any:
    """Yield each page's paragraphs, and whether the page is an image: little text, and images over most of
    it.
    """
    from pdfminer import layout
    from pdfminer.converter import PDFPageAggregator
    from pdfminer.layout import LAParams, LTTextContainer
    from pdfminer.pdfinterp import PDFPageInterpreter, PDFResourceManager
    from pdfminer.pdfpage import PDFPage

    resources = PDFResourceManager()
    device = PDFPageAggregator(resources, laparams=LAParams())
    interpreter = PDFPageInterpreter(resources, device)
    numbers: dict[int, int] = {}
    # Boxes that are equally far apart are grouped by their addresses in memory, so that a file says something
    # else each time.
    layout.id = lambda box: numbers.setdefault(id(box), len(numbers))  # type: ignore[attr-defined]  # the module has no such name: ours hides the function id from it
    for page in PDFPage.create_pages(document):
        numbers.clear()
        interpreter.process_page(page)
        result = device.get_result()
        boxes = (box.get_text() for box in result if isinstance(box, LTTextContainer))
        paragraphs = [paragraph for paragraph in map(_paragraph, boxes) if paragraph]
        paragraphs += _filled_in(page)
        letters = sum(letter.isalnum() for paragraph in paragraphs for letter in paragraph)
        yield paragraphs, letters < FEW_LETTERS and _image_share(result) >= COVERED


def _filled_in(page: Any) -> Iterator[str]:
    """Yield what people put on a page: the fields of a form with their values, and texts typed onto it."""
    from pdfminer.pdftypes import resolve1

    for reference in _as_list(resolve1(page.annots)):
        mark = _as_dict(resolve1(reference))
        kind = getattr(mark.get("Subtype"), "name", "")
        if kind == "FreeText" and (text := _text_of_object(resolve1(mark.get("Contents")))):
            yield text
        elif kind == "Widget":
            parent = _as_dict(resolve1(mark.get("Parent")))  # of a field with several places
            name, value = (_text_of_object(resolve1(mark.get(key, parent.get(key)))) for key in ("T", "V"))
            if value and value != "Off":
                yield f"{name}: {value}" if name else value


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text_of_object(value: Any) -> str:
    """A text of a PDF, or the name of a choice, on one line; "" for anything else."""
    from pdfminer.utils import decode_text

    text = decode_text(value) if isinstance(value, bytes) else getattr(value, "name", "")
    return " ".join(text.replace("\0", "").split()) if isinstance(text, str) else ""


def _image_share(page: Any) -> float:
    """The share of a page's area that its largest image covers."""
    from pdfminer.layout import LTFigure, LTImage

    def images(container: Any) -> Iterator[float]:
        for element in container:
            if isinstance(element, LTImage):
                yield element.width * element.height
            elif isinstance(element, LTFigure):
                yield from images(element)

    return max(images(page), default=0.0) / (page.width * page.height or 1.0)


def _paragraph(box: str) -> str:
    """The lines of a box as one, words that were parted at a line's end made whole; a letter a line is
    upright text.
    """
    lines = [line.strip() for line in box.splitlines() if line.strip()]
    if len(lines) > 3 and all(len(line) == 1 for line in lines):
        return "".join(lines)
    return " ".join(_HYPHEN.sub("", "\n".join(lines)).split())


def _title(document: Any) -> str:
    from pdfminer.pdftypes import resolve1

    titles = (resolve1(info.get("Title")) for info in document.info)
    return next(filter(None, (_text_of_object(title) for title in titles if isinstance(title, bytes))), "")
