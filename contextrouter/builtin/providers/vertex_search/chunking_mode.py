"""Whether a data store holds chunks, as the mode of the settings says: a mismatch finds nothing, silently."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from contextrouter.builtin.shared.google_cloud.cloud_connection import CloudConnection
from contextrouter.errors import SourceError

log = logging.getLogger("contextrouter")
_MISSING = object()


async def check_mode(
    connection: CloudConnection, parent: str, engine: str, data_store: str, mode: str
) -> None:
    """Raise SourceError where a data store does not fit `mode`, or is not there.

    An account that may search but not read settings is let through, with a line in the log.
    """
    try:
        for name in [data_store] if data_store else await _data_stores(connection, parent, engine):
            if await _has_chunks(connection, f"{parent}/dataStores/{name}") != (mode == "chunks"):
                raise SourceError(_mismatch(name, mode))
    except _Unknown as error:
        log.info("The mode of %s is not checked: %s", connection.service.name, error)


def _mismatch(name: str, mode: str) -> str:
    state, alternative = ("without", "documents") if mode == "chunks" else ("with", "chunks")
    return (
        f"Data store {name!r} was made {state} chunks, so mode = {mode!r} finds nothing in it. Set"
        f" mode = {alternative!r}, or make the data store anew in the other way."
    )


class _Unknown(Exception):
    """The settings of a data store cannot be read."""


async def _data_stores(connection: CloudConnection, parent: str, engine: str) -> Sequence[str]:
    from google.cloud.discoveryengine_v1 import GetEngineRequest

    client = connection.client("engine_service")
    settings = await _read_settings(
        connection, client.get_engine, GetEngineRequest(name=f"{parent}/engines/{engine}")
    )
    return list(settings.data_store_ids)


async def _has_chunks(connection: CloudConnection, name: str) -> bool:
    from google.cloud.discoveryengine_v1 import GetDataStoreRequest

    client = connection.client("data_store_service")
    settings = await _read_settings(connection, client.get_data_store, GetDataStoreRequest(name=name))
    return bool(type(settings).pb(settings).document_processing_config.HasField("chunking_config"))


async def _read_settings(connection: CloudConnection, method: Any, request: Any) -> Any:
    connection.resource = request.name
    answer = await connection.call(method, request, instead={"PermissionDenied": None, "NotFound": _MISSING})
    if answer is None:
        raise _Unknown(f"the account may not read {request.name!r}")
    if answer is _MISSING:
        raise connection.answer_error(f"has no {request.name!r}", "Check project, location, and its name.")
    return answer
