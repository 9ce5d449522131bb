"""The tables of ingestion: `[ingest]` for every job, and `[ingest.<name>]` for one."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contextrouter.model.document import Trust
from contextrouter.scope import Sensitivity

MOST_WORKERS = 1024
Title = Annotated[str, Meta(min_length=1, max_length=100)]


class Ingestion(msgspec.Struct, frozen=True, kw_only=True):
    """`[ingest]`: the keys that count for every job."""

    # share of a job's documents that one run removes
    remove_at_most: Annotated[float, Meta(ge=0, le=1)] = 0.5
    workers: Annotated[int, Meta(ge=0, le=MOST_WORKERS)] = 0  # 0: the process of the command does it all
    runner: Literal["processes", "ray"] = "processes"  # what the workers are
    ray_address: str = "auto"  # of a Ray cluster; "auto": the one of this machine, "local": one of its own


class Job(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    """`[ingest.<name>]`: source, transforms and store of a job, and labels for documents without labels."""

    source: Annotated[str, Meta(min_length=1)]  # a connector's name, or a path relative to the settings file
    to: str
    workers: Annotated[int, Meta(ge=0, le=MOST_WORKERS)] | None = None  # None: those of `[ingest]`
    transforms: tuple[str, ...] = ("chunk", "keywords")
    # the first part of the documents' ids; without it, the job's name
    origin: Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,64}$")] | None = None
    title: Title | None = None  # names its documents in the context, in place of the source
    kind: str | None = None
    trust: Trust | None = None
    tenant: str | None = None
    compartment: str | None = None
    sensitivity: Sensitivity | None = None
