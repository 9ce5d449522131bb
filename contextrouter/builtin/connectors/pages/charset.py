"""Character set detection (charset, encoding) of a web page: byte order mark, HTTP header, meta element."""

from __future__ import annotations

import codecs
import re

SNIFFED = 1 << 20
"""Bytes at the beginning of a page in which it may name its charset."""
DETECTED = 20_000
"""Bytes, of lines that are not ASCII, of which a charset is detected."""
_MANY = 0.3
"""Share of letters beyond ASCII from which a text is in another script than Latin."""

_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9._-]{1,40})", re.I)
_XML = re.compile(rb"^\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})[\"']")
_HEADER = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9._-]{1,40})", re.I)
BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_TAGS = re.compile(rb"<[^<>]{0,2000}>")
# Names that the web uses for their supersets.
_WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252", "ascii": "cp1252"}
# Codecs of Python that nothing on the web is written in, and that take hostile input badly.
_NO_CHARSETS = {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7"}


def find_codec(name: str) -> str | None:
    """The codec to decode with; None for one that is unknown, or that cannot be right where ASCII was
    read.
    """
    try:
        codec = codecs.lookup(name).name
        b"x".decode(codec)  # refuses what is no charset; for no bytes at all it would not even look
    except (LookupError, UnicodeError):
        return None
    if codec.replace("_", "-") in _NO_CHARSETS or codec.startswith(("utf-16", "utf-32")):
        return None
    return _WIDER.get(codec, codec)


def header_charsets(content_type: str) -> list[str]:
    """The charset that a `Content-Type` names, if it names one."""
    return _HEADER.findall(content_type)[:1]


def xml_charsets(body: bytes) -> list[str]:
    """The charset that an XML declaration names, if it names one."""
    return [name.decode() for name in _XML.findall(body[:400])]


def decode_page(body: bytes, charsets: list[str]) -> str:
    """Decode by the byte order mark, else by the first of `charsets` that is one, which a few broken bytes do
    not overrule.
    """
    for mark, encoding in BOMS:
        if body.startswith(mark):
            return body.decode(encoding, "replace").removeprefix("\ufeff")
    name = next(filter(None, map(find_codec, charsets)), "utf-8")
    for candidate in dict.fromkeys((name, "utf-8")):
        try:
            return body.decode(candidate)
        except UnicodeDecodeError:
            continue
    return body.decode(name, "replace")


def page_text(body: bytes, content_type: str) -> str:
    """The text of a page: the server's word stands over the page's own, as in browsers; without either,
    UTF-8, else what the letters look like.
    """
    meta = _META.search(body[:SNIFFED])
    inside = [meta[1].decode()] if meta else []
    charsets = [*header_charsets(content_type), *inside, *xml_charsets(body)]
    if not any(map(find_codec, charsets)):
        try:
            return body.decode().removeprefix("\ufeff")
        except UnicodeDecodeError:
            is_utf8 = body.count(b"\xef\xbf\xbd") or _mostly_utf8(body)
            charsets = ["utf-8" if is_utf8 else _detect(body) or "cp1252"]
    return decode_page(body, charsets)


def _detect(body: bytes) -> str:
    """The charset of a page that names none, by its letters; "" for a Latin one, and where nobody can tell.

    Short texts in Latin letters look alike in many charsets, so those are Windows-1252, as in browsers.
    """
    lines = (line for line in _TAGS.sub(b" ", body[:SNIFFED]).splitlines() if not line.isascii())
    sample = b"\n".join(lines)[:DETECTED]
    letters = sum(byte > 127 or chr(byte).isalpha() for byte in sample)
    if not letters or sum(byte > 127 for byte in sample) < _MANY * letters:
        return ""
    try:
        from charset_normalizer import from_bytes
    except ImportError:  # comes with what reads pages; feeds are read without it
        return ""
    best = from_bytes(sample).best()
    return best.encoding if best is not None and find_codec(best.encoding) else ""


def _mostly_utf8(body: bytes) -> bool:
    """Whether what is not ASCII is UTF-8 but for a few broken bytes."""
    text = body[: 1 << 20].decode("utf-8", "replace")
    broken = text.count("\ufffd")
    return broken * 5 < sum(letter > "\x7f" for letter in text)
