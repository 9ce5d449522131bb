"""Phrases: which queries count where the phrases of a question find something, and which where not."""

from __future__ import annotations

from collections.abc import Iterable

from contextrouter.model import Call, Plan, Query
from contextrouter.text.query_syntax import loosen, parse


class Phrases:
    """The phrases of one plan.

    A part of the question that rules made a query of may lack its phrases. Such a query counts on a leg that
    phrases bind only where they found nothing there.
    """

    def __init__(self, plan: Plan) -> None:
        self._calls, intent = plan.calls, plan.intent
        phrases = {*parse(intent.question).required}
        self.parts = (
            {text for text in intent.derived if phrases - {*parse(text).required}} if phrases else set()
        )

    def lacks(self, call: Call) -> bool:
        """Whether a call asks a part of the question that lacks its phrases."""
        return call.query.text in self.parts and not call.query.required

    def fallback(self, call: Call, query: Query) -> tuple[Query | None, str]:
        """Return what to ask where the phrases of a query found nothing (None: parts of the question without
        them are asked already), and what to say of it.
        """
        phrases = " and ".join(" or ".join(f'"{text}"' for text in group) for group in query.required)
        if any(self.lacks(other) and same_leg(other, call) for other in self._calls):
            return None, f"phrase {phrases} found nothing; the parts of the question without it count"
        note = f"phrase {phrases} found nothing; its words were searched"
        return query.replace(text=loosen(query.text), required=()), note

    def is_outdone(self, call: Call, successful: Iterable[Call]) -> bool:
        """Whether a call lacks phrases with which a query found something on the same leg."""
        return self.lacks(call) and any(
            other.query.required and same_leg(other, call) for other in successful
        )


def same_leg(call: Call, other: Call) -> bool:
    """Whether two calls ask the same leg of the same source."""
    return (call.source, call.query.leg) == (other.source, other.query.leg)
