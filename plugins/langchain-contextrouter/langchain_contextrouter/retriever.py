"""The LangChain retriever: asks a router, and returns LangChain documents with their citations."""

from __future__ import annotations

from typing import Any, Unpack, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field, PrivateAttr

from contextrouter import Context, Portal, Scope
from contextrouter.adapting import RequestFields, all_of, coverage_of, metadata_of, portal_of, text_of

COVERAGE_EVENT = "contextrouter_coverage"
"""The name of the custom event that says how each source answered."""
MOST = 1000


class ContextRouterRetriever(BaseRetriever):
    """Retrieves from all sources of a router, within one deadline.

    `router` is a settings file, tables, Settings, a function that returns a router, or a Portal, which many
    retrievers can share. `k` is the most documents, 1 to 1000. `scope` is what the caller may see: it comes
    from the program, never from a model. All of these but `router` can be given to `invoke` too, as every
    field of a request; filters of both hold. Raises AllSourcesFailed where no source answered; where some did
    not, `metadata["degraded"]` is true, and the event `contextrouter_coverage` says which.
    """

    router: Any = Field(repr=False, exclude=True)  # settings may hold secrets
    k: int | None = Field(default=None, ge=1, le=MOST)
    scope: Scope | None = None
    deadline: float | None = None
    filters: dict[str, Any] = Field(default_factory=dict)
    sources: list[str] | None = None
    _portal: Portal = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        self._portal = portal_of(self.router)

    @property
    def portal(self) -> Portal:
        """The portal that is asked. `portal.route` returns the whole Context; `portal.close()` ends it."""
        return self._portal

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        **fields: Unpack[RequestFields],
    ) -> list[Document]:
        context = self._portal.route(query, **self._fields(k, fields))
        dispatch_custom_event(
            COVERAGE_EVENT, coverage_of(context), config={"callbacks": run_manager.get_child()}
        )
        return documents_of(context)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        **fields: Unpack[RequestFields],
    ) -> list[Document]:
        context = await self._portal.aroute(query, **self._fields(k, fields))
        await adispatch_custom_event(
            COVERAGE_EVENT, coverage_of(context), config={"callbacks": run_manager.get_child()}
        )
        return documents_of(context)

    def _fields(self, k: int | None, fields: RequestFields) -> RequestFields:
        """Return the fields of the request: those of the call go before those of the retriever."""
        unknown = sorted(fields.keys() - RequestFields.__annotations__.keys())
        if unknown:
            raise TypeError(
                f"The retriever has no argument {unknown[0]!r}. It takes k,"
                f" {', '.join(RequestFields.__annotations__)}."
            )
        if k is not None and not (type(k) is int and 1 <= k <= MOST):
            raise ValueError(f"k {k!r} is not a number of documents. Give 1 to {MOST}.")
        own = {"limit": self.k, "scope": self.scope, "deadline": self.deadline, "sources": self.sources}
        asked: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        if k is not None:
            asked["limit"] = k
        filters = all_of(self.filters, asked.get("filters", {}))
        return cast(RequestFields, {**own, **asked, "filters": filters or None})


def documents_of(context: Context) -> list[Document]:
    """Return the documents of a context, best first: document `n` is citation `[n]` of `context.text`."""
    return [
        Document(id=envelope.id, page_content=text_of(envelope), metadata=metadata_of(context, index))
        for index, envelope in enumerate(context.envelopes)
    ]
