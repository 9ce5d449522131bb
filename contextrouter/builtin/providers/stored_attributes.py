"""The attributes of a fact as a store keeps them: JSON, with a key that says who wrote the fact."""

from __future__ import annotations

from typing import Any

import msgspec

from contextrouter.model import Document, Fact

UNTRUSTED_MARK = "u001funtrusted"
"""What stands in the JSON of an untrusted fact, and hardly ever in that of another one."""
_UNTRUSTED = "\x1funtrusted"  # a source that writes it itself makes its fact untrusted, and nothing else


def encode_attributes(fact: Fact, document: Document) -> str:
    """Return the attributes as JSON. A fact of an untrusted document is untrusted. Values that JSON lacks
    become text.
    """
    attributes = dict(fact.attributes)
    if fact.untrusted or document.untrusted:
        attributes[_UNTRUSTED] = True
    return msgspec.json.encode(attributes, enc_hook=str).decode()


def decode_attributes(stored: str) -> dict[str, Any]:
    """Return the fields of a fact that `encode_attributes` put there: `attributes` and `untrusted`."""
    attributes = msgspec.json.decode(stored)
    untrusted = attributes.pop(_UNTRUSTED, False)
    return {"attributes": attributes, "untrusted": bool(untrusted)}
