"""Zip packages of documents (OOXML, OpenDocument, EPUB): bounded reading of their parts as XML."""

from __future__ import annotations

import zipfile
from io import BytesIO
from typing import Any

from contextrouter.builtin.connectors.files.parsing.parsed import Unreadable

PART_BYTES = 200_000_000
"""A part that unpacks to more is refused."""
_COMPOUND = (
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # how encrypted files begin, and those of the formats before 2007
)


def openable(data: bytes) -> BytesIO:
    """The bytes of an Office document as a file. Raises Unreadable for one that is encrypted or too old."""
    if data.startswith(_COMPOUND):
        raise Unreadable("is encrypted, or in a format from before 2007; save it anew, without a password.")
    return BytesIO(data)


class Package:
    """The parts of a zip package by name."""

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(BytesIO(data))
        except zipfile.BadZipFile as error:
            raise Unreadable(f"is broken ({error}).") from None
        self.names = self._zip.namelist()

    def read(self, name: str) -> bytes:
        """The bytes of a part. Raises Unreadable for one that is absent, encrypted or too large."""
        try:
            with self._zip.open(name) as part:
                data = part.read(PART_BYTES + 1)
        except KeyError:
            raise Unreadable(f"has no part {name!r}, so it is broken.") from None
        except RuntimeError as error:  # what zipfile raises for a password
            raise Unreadable(f"is encrypted ({error}); save it without a password.") from None
        if len(data) > PART_BYTES:
            raise Unreadable(f"unpacks to more than {PART_BYTES // 1_000_000} MB.")
        return data

    def xml(self, name: str) -> Any:
        """The root element of a part."""
        return xml(self.read(name))


def xml(data: bytes) -> Any:
    """The root element of an XML text; entities are not expanded, and nothing is fetched."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True, remove_comments=True)
    root = etree.fromstring(data, parser)
    if root is None:
        raise Unreadable("holds no XML.")
    return root
