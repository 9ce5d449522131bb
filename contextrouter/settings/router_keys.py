"""The router's own keys in the tables of plugins: a struct for each kind, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contextrouter.model.document import Trust
from contextrouter.scope import Sensitivity
from contextrouter.settings.ingestion import Title
from contextrouter.settings.values import Positive, Seconds, Weight

Price = Annotated[float, Meta(ge=0)]


class OtherKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The router's own keys in the table of any plugin; those of the kinds below have more."""

    use: str | None = None
    enabled: bool = True


class FactKeys(OtherKeys, frozen=True, kw_only=True):
    """The router's own keys in the table of a fact source. Facts are not fused and have no kind."""

    required: bool = False  # without it the server is not ready
    timeout: Seconds | None = None
    limit: Positive | None = None
    concurrency: Positive | None = None
    tenant: str | None = None
    compartment: str | None = None
    sensitivity: Sensitivity | None = None

    @property
    def labels(self) -> bool:
        """Whether the table sets labels for the documents of its source."""
        return any((self.tenant, self.compartment, self.sensitivity))


class SourceKeys(FactKeys, frozen=True, kw_only=True):
    """The router's own keys in the table of a provider or a connector."""

    weight: Weight = 1.0
    legs: tuple[str, ...] | None = None
    queries: Annotated[int, Meta(ge=1, le=3)] | None = None
    kind: str | None = None
    title: Title | None = None  # names its documents in the context, in place of its own name
    shadow: bool = False  # asked and compared with the others, and never shown
    trust: Trust | None = None
    live: bool = False  # of a connector: it is asked although a job reads it into a store that is asked

    @property
    def labels(self) -> bool:
        """Whether the table sets labels for the documents of its source."""
        return bool(self.kind or self.trust) or any((self.tenant, self.compartment, self.sensitivity))


class StageKeys(OtherKeys, frozen=True, kw_only=True):
    """The router's own keys in the table of a stage."""

    top_n: Positive | None = None  # the stage ranks only the first n documents; the others follow after them
    keep: Positive | None = None  # how many documents the stage keeps
    # while it runs, each leg is asked for so many times more
    pool: Annotated[float, Meta(ge=1, le=100)] = 1.0
    timeout: Seconds | None = None
    on_error: Literal["skip", "raise"] = "skip"


class InterpreterKeys(OtherKeys, frozen=True, kw_only=True):
    """The router's own keys in the table of an interpreter. It has no `top_n` and no `keep`."""

    timeout: Seconds | None = None
    on_error: Literal["skip", "raise"] = "skip"


class GeneratorKeys(OtherKeys, frozen=True, kw_only=True):
    """The router's own keys in the table of a generator."""

    price_in: Price | None = None  # of a million tokens that it reads, in any currency
    price_out: Price | None = None  # of a million tokens that it writes


_KEYS: Mapping[str, type[OtherKeys]] = {
    "fact": FactKeys,
    "provider": SourceKeys,
    "connector": SourceKeys,
    "stage": StageKeys,
    "interpreter": InterpreterKeys,
    "generator": GeneratorKeys,
}


def keys_of(kind: str) -> type[OtherKeys]:
    """Return the struct of the router's own keys for this kind."""
    return _KEYS.get(kind, OtherKeys)
