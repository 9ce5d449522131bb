"""The two documents in the stores that `example()` makes."""

from __future__ import annotations

from contextrouter.contracts import Entry
from contextrouter.model import Document

EXAMPLE_DOCUMENTS = (
    Document(id="tides", title="Tides", content="The moon and the sun raise the tides of the sea."),
    Document(id="comets", title="Comets", content="A comet is ice and dust; near the sun it grows a tail."),
)
EXAMPLE_ENTRIES = tuple(Entry(document=each, chunks=[each]) for each in EXAMPLE_DOCUMENTS)
