"""The Haystack component: asks a router, and returns Haystack documents with their citations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.core.errors import DeserializationError, SerializationError
from haystack_integrations.components.retrievers.contextrouter.filters import filters_of

from contextrouter import Context, Portal, Scope
from contextrouter.adapting import (
    RequestFields,
    RouterLike,
    all_of,
    coverage_of,
    metadata_of,
    portal_of,
    secret_in,
    text_of,
)

MOST = 1000


@component
class ContextRouterRetriever:
    """Retrieves from all sources of a router, within one deadline.

    `router` is a settings file, tables, Settings, a function that returns a router, or a Portal, which many
    components can share; only a file or tables can be written into a pipeline's file. `top_k` is the most
    documents, 1 to 1000. `scope` is what the caller may see. With `scope_input`, each run must be given one:
    the component has an input `scope` then, which it has not otherwise, so that no tool offers it to a model.
    Filters have `==`, `in` and AND.
    """

    def __init__(
        self,
        router: RouterLike,
        *,
        top_k: int | None = None,
        filters: dict[str, Any] | None = None,
        scope: Scope | None = None,
        scope_input: bool = False,
        deadline: float | None = None,
        sources: Sequence[str] | None = None,
    ) -> None:
        if scope is not None and not isinstance(scope, Scope):
            raise TypeError(f"scope is a Scope of contextrouter, not a {type(scope).__name__}.")
        self.router, self.top_k, self.filters = router, _checked(top_k), filters
        self.scope, self.scope_input, self.deadline = scope, scope_input, deadline
        self.sources = None if sources is None else list(sources)
        self._filters = filters_of(filters)
        self._portal = portal_of(router)
        if scope_input:
            component.set_input_type(self, "scope", Scope)

    @property
    def portal(self) -> Portal:
        """The portal that is asked. `portal.route` returns the whole Context."""
        return self._portal

    @component.output_types(
        documents=list[Document], context=str, coverage=list[dict[str, Any]], degraded=bool, outcome=str
    )
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None, **scope: Any
    ) -> dict[str, Any]:
        """Retrieve documents.

        :param query: The question.
        :param filters: Filters beside those of the component; both hold.
        :param top_k: The most documents, 1 to 1000, in place of the component's.
        :returns: `documents`; `context`, the numbered text for a prompt; `coverage`, a report for each leg of
            each source; `degraded`, whether a source failed; `outcome`.
        :raises AllSourcesFailed: No source answered.
        :raises FilterError: A filter that a router does not have.
        """
        return outputs_of(self._portal.route(query, **self._fields(filters, top_k, scope)))

    @component.output_types(
        documents=list[Document], context=str, coverage=list[dict[str, Any]], degraded=bool, outcome=str
    )
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None, **scope: Any
    ) -> dict[str, Any]:
        """Retrieve documents; as `run`. Who cancels it, cancels the calls to the sources.

        :param query: The question.
        :param filters: Filters beside those of the component; both hold.
        :param top_k: The most documents, 1 to 1000, in place of the component's.
        """
        return outputs_of(await self._portal.aroute(query, **self._fields(filters, top_k, scope)))

    def close(self) -> None:
        """Close the router, unless it is that of a portal that was handed over."""
        if not isinstance(self.router, Portal):
            self._portal.close()

    def to_dict(self) -> dict[str, Any]:
        """Return the component as a table for a pipeline's file. Raises SerializationError where it cannot be
        written: a router that is neither a file nor tables, or a secret that is not named by `${VARIABLE}`.
        """
        if not isinstance(self.router, str | Path | Mapping):
            raise SerializationError(
                f"ContextRouterRetriever has a {type(self.router).__name__} as its router, which no file can"
                " hold. Give the path of a settings file, or tables."
            )
        tables = None if isinstance(self.router, str | Path) else dict(self.router)
        if tables is not None and (secret := secret_in(tables)):
            raise SerializationError(
                f"{secret} of the router is a secret, which no pipeline's file may hold. Write"
                ' "${VARIABLE}", and set the environment variable.'
            )
        written: dict[str, Any] = default_to_dict(
            self,
            router=str(self.router) if tables is None else tables,
            top_k=self.top_k,
            filters=self.filters,
            scope=None if self.scope is None else _table_of(self.scope),
            scope_input=self.scope_input,
            deadline=self.deadline,
            sources=self.sources,
        )
        return written

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the component of a table. Raises DeserializationError for tables that load plugin files:
        only a settings file of your own may.
        """
        parameters = dict(data.get("init_parameters", {}))
        router = parameters.get("router")
        if isinstance(router, Mapping) and "plugins" in router:
            raise DeserializationError(
                "The tables of a router in a pipeline's file have [plugins], which loads code. Write a"
                " settings file, and name its path."
            )
        if isinstance(parameters.get("scope"), Mapping):
            parameters["scope"] = Scope(**parameters["scope"])
        made: Self = default_from_dict(cls, {**data, "init_parameters": parameters})
        return made

    def _fields(
        self, filters: dict[str, Any] | None, top_k: int | None, trusted: Mapping[str, Any]
    ) -> RequestFields:
        unknown = trusted.keys() - ({"scope"} if self.scope_input else set())
        if unknown:
            raise TypeError(f"ContextRouterRetriever has no input {min(unknown)!r}.")
        scope = self.scope
        if self.scope_input:
            scope = trusted.get("scope")
            if not isinstance(scope, Scope):  # a table from the network is none, and none is made of it
                raise TypeError(
                    f"The input 'scope' is a Scope of contextrouter, not a {type(scope).__name__}. Make it"
                    " from the caller's verified rights."
                )
        return {
            "limit": self.top_k if top_k is None else _checked(top_k),
            "scope": scope,
            "deadline": self.deadline,
            "sources": self.sources,
            "filters": all_of(self._filters, filters_of(filters)) or None,
        }


def outputs_of(context: Context) -> dict[str, Any]:
    """Return the outputs for a context: document `n` is citation `[n]` of `context.text`."""
    documents = [
        Document(
            id=envelope.id,
            content=text_of(envelope),
            meta=metadata_of(context, index),
            score=envelope.normalized,
        )
        for index, envelope in enumerate(context.envelopes)
    ]
    return {"documents": documents, "context": context.text, **coverage_of(context)}


def _checked(top_k: int | None) -> int | None:
    if top_k is not None and not 1 <= top_k <= MOST:
        raise ValueError(f"top_k {top_k!r} is no number of documents. Give 1 to {MOST}.")
    return top_k


def _table_of(scope: Scope) -> dict[str, Any]:
    return {"tenant": scope.tenant, "compartments": sorted(scope.compartments), "ceiling": scope.ceiling}
