"""The fingerprints of the documents that a store already holds, read once for each tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextrouter.contracts import SupportsTenants, SupportsUpsert
from contextrouter.errors import IngestError
from contextrouter.runtime.plugin_calls import containment


class StoredFingerprints:
    """Document id -> stored fingerprint, by tenant, as they were before the run."""

    def __init__(self, store: SupportsUpsert) -> None:
        self.store = store
        self.by_tenant: dict[str | None, Mapping[str, str]] = {}

    async def load(self, tenant: str | None) -> Mapping[str, str]:
        """Return the fingerprints of one tenant's documents; the store is asked for them once."""
        if tenant not in self.by_tenant:
            try:
                with containment():
                    self.by_tenant[tenant] = await self.store.fingerprints(tenant)
            except Exception as error:  # batches that were stored before stay stored; nothing is removed
                raise IngestError(f"The store does not say what it holds: {error}") from error
        return self.by_tenant[tenant]

    async def load_all(self) -> Mapping[str | None, Mapping[str, str]]:
        """Return the fingerprints of every tenant that the store can name, and of those loaded before."""
        for tenant in await self._tenants():
            await self.load(tenant)
        return self.by_tenant

    async def _tenants(self) -> Sequence[str | None]:
        if not isinstance(self.store, SupportsTenants):
            return ()
        try:
            with containment():
                return await self.store.tenants()
        except Exception as error:  # batches that were stored before stay stored; nothing is removed
            raise IngestError(f"The store does not say whose documents it holds: {error}") from error
