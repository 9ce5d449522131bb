"""Whole documents by id: read from the source that has them, and checked as if they had been found."""

from __future__ import annotations

from contextrouter.contracts import SupportsFetch
from contextrouter.errors import ContextRouterError, SourceError, SourceTimeout
from contextrouter.model import Document, Hit, Query
from contextrouter.pipeline.admission import Admission
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.engine import Engine
from contextrouter.runtime.plugin_calls import as_plain, text_of
from contextrouter.scope import Scope


async def whole_document(
    engine: Engine, source: str, id: str, scope: Scope | None, seconds: float
) -> Document | None:
    """Return a document, or a chunk; None where there is none that the scope allows, or the source has no ids
    to read by. Raises SourceError, and SourceTimeout after `seconds`.
    """
    plugin: object = engine.sources.get(source)
    if not isinstance(plugin, SupportsFetch) or source in engine.shadows:
        return None
    abandoned = engine.limits.abandoned.of("source", source)
    query = Query(text="", leg="fetch", scope=scope)
    try:
        documents = as_plain(await Deadline.after(seconds).run(plugin.fetch([id], scope), abandoned))
        hits = [Hit(document=document) for document in documents if id in (document.id, document.parent)]
        admitted = Admission(query, engine.source_keys[source]).hits(hits)
    except TimeoutError:
        raise SourceTimeout(f"Source {source!r} did not answer within {seconds:g} s.") from None
    except ContextRouterError:
        raise
    except Exception as error:
        raise SourceError(f"Source {source!r} failed: {text_of(error) or type(error).__name__}.") from error
    return admitted[0].document if admitted else None
