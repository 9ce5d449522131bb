"""The data model: document, hit, envelope, fact, request, intent, query, plan, report, trace and context.

A question is a `Request`; interpreted, an `Intent`; planned, a `Plan` of `Call`s, each with a `Query`.
Sources answer with `Hit`s around `Document`s; they become `RankedList`s, then `Envelope`s with `Provenance`;
the `Context` holds the best. All are frozen.
"""

from contextrouter.model.answer import Answer
from contextrouter.model.document import SEARCH_TEXT, TRUSTS, Document, Envelope, Hit, Provenance, RankedList
from contextrouter.model.fact import Entity, Facet, Fact
from contextrouter.model.noun import Noun, Vector
from contextrouter.model.request import (
    Call,
    Clarification,
    Intent,
    Period,
    Plan,
    Query,
    Request,
    RequestFields,
)
from contextrouter.model.result import (
    Citation,
    Context,
    Harvest,
    ModelUsage,
    SourceReport,
    Status,
    Step,
    Trace,
    Usage,
)
from contextrouter.scope import Scope as Scope  # older programs import it from here

__all__ = [
    "SEARCH_TEXT",
    "TRUSTS",
    "Answer",
    "Call",
    "Citation",
    "Clarification",
    "Context",
    "Document",
    "Entity",
    "Envelope",
    "Facet",
    "Fact",
    "Harvest",
    "Hit",
    "Intent",
    "ModelUsage",
    "Noun",
    "Period",
    "Plan",
    "Provenance",
    "Query",
    "RankedList",
    "Request",
    "RequestFields",
    "SourceReport",
    "Status",
    "Step",
    "Trace",
    "Usage",
    "Vector",
]
