"""Laws of stores that note runs: documents say when they were last compared with their source."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from contextrouter.contracts import SupportsUpsert
from contextrouter.model import Document
from contextrouter.testing.exercise import make_query
from contextrouter.testing.kit import Law, law_of
from contextrouter.testing.laws.store_documents import WORD, store_entry
from contextrouter.testing.messages import Broken
from contextrouter.testing.subject import Subject

_FIRST = datetime(2025, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
_JOB, _OTHERS = "quokka", ("quokkas", "quok")


@runtime_checkable
class RunStore(SupportsUpsert, Protocol):
    """A store that notes when a job was last run to its end."""

    async def record_run(self, origin: str, moment: datetime) -> None:
        """Note a run."""
        ...


@law_of(RunStore)
async def documents_have_the_time_of_the_last_run_of_their_job(subject: Subject) -> None:
    """After record_run() the documents of the job, and no others, have its moment as `synced_at`."""
    async with subject.open_plugin() as plugin:
        for origin in (_JOB, *_OTHERS):
            id = f"{origin}:{WORD}"
            chunks = [Document(id=f"{id}#0", content=f"{WORD} part", parent=id)]
            document = Document(id=id, content=WORD)
            await plugin.upsert([store_entry(subject, plugin, document, chunks)])
        for moment in (_FIRST, _FIRST + timedelta(days=1)):
            await plugin.record_run(_JOB, moment)
            for leg in plugin.legs:
                hits = await plugin.search(make_query(plugin, WORD, leg, subject, limit=1000))
                _compare_times([hit.document for hit in hits], moment, f"search() on {leg!r}")


def _compare_times(documents: list[Any], moment: datetime, call: str) -> None:
    origins = {(document.parent or document.id).partition(":")[0]: document for document in documents}
    if _JOB not in origins:
        raise Broken(f"{call} returned no document of the job {_JOB!r}")
    if (time := origins[_JOB].synced_at) != moment:
        raise Broken(f"{call} returned `synced_at` {time} after a run at {moment}")
    for origin in _OTHERS:
        if origin in origins and origins[origin].synced_at == moment:
            raise Broken(f"{call} dated a document of {origin!r} by the run of {_JOB!r}")


LAWS: tuple[Law, ...] = (documents_have_the_time_of_the_last_run_of_their_job,)
