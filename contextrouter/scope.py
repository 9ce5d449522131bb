"""The access rule: tenant, compartments and sensitivity that a caller may see. It fails closed."""

from __future__ import annotations

from typing import Any, Literal, Protocol, Self, get_args

import msgspec

Sensitivity = Literal["public", "internal", "confidential", "restricted"]
SENSITIVITIES: tuple[str, ...] = get_args(Sensitivity)
"""Lowest first; a level not listed is above them all."""
SHARED = "*"
"""The tenant of what every tenant may see; only settings and ingestion give it, and on purpose."""


class Labelled(Protocol):
    """A document, a fact or an entity: anything with access labels."""

    @property
    def tenant(self) -> str | None: ...
    @property
    def compartment(self) -> str | None: ...
    @property
    def sensitivity(self) -> str | None: ...


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller may see: one tenant, a set of compartments, and a ceiling of sensitivity. All must
    match.
    """

    tenant: str | None = None
    compartments: frozenset[str] = frozenset()
    ceiling: str = "public"

    def __post_init__(self) -> None:
        if self.ceiling not in SENSITIVITIES:
            raise ValueError(f"Scope.ceiling {self.ceiling!r} is not one of {', '.join(SENSITIVITIES)}.")
        given: object = self.compartments
        if not isinstance(given, frozenset):
            if isinstance(given, str):  # what a caller may well write
                raise TypeError("Scope.compartments is a set of names, not one string.")
            msgspec.structs.force_setattr(self, "compartments", frozenset(self.compartments))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`."""
        return msgspec.structs.replace(self, **changes)

    def allows(self, item: Labelled) -> bool:
        """Whether `item` may be seen. An item without a tenant belongs to the scope without a tenant, and to
        no other.
        """
        if item.tenant != SHARED and (item.tenant or None) != (self.tenant or None):
            return False
        if item.compartment and item.compartment not in self.compartments:
            return False
        return not item.sensitivity or item.sensitivity in self.levels()

    def levels(self) -> tuple[str, ...]:
        """The sensitivities up to the ceiling."""
        return SENSITIVITIES[: SENSITIVITIES.index(self.ceiling) + 1]
