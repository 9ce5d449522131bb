"""The plugins and options that one ingestion job runs with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from contextrouter.contracts import Embedder, SupportsCrawl, SupportsUpsert, Transform
from contextrouter.ingest.preparation import check_labels

_ORIGIN = re.compile(r"[\w.-]+")


class JobPlugins(NamedTuple):
    """The plugins of a job. All of them are open."""

    source: SupportsCrawl
    store: SupportsUpsert
    transforms: Sequence[Transform]
    embedder: Embedder | None
    others: Sequence[Embedder] = ()  # of further models whose vectors the store has
    fingerprint_model: tuple[str, int] | None = None  # what fingerprints count in the place of the embedder's


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a job, as `ingest` describes them. Raises ValueError for a value that makes no sense."""

    origin: str
    job: str = ""  # its name in the settings, if it has one
    labels: Mapping[str, str] = {}
    batch: int = 64
    dry_run: bool = False
    rebuild: bool = False
    remove: bool = False
    remove_at_most: float = 0.5

    def __post_init__(self) -> None:
        check_labels(self.labels)
        if not _ORIGIN.fullmatch(self.origin):
            raise ValueError(f"Origin {self.origin!r} is not a name; use letters, digits, `_`, `-` and `.`.")
        if self.batch < 1:
            raise ValueError(f"Batch {self.batch!r} is too small; give a number of at least 1.")
