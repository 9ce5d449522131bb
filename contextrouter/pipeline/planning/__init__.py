"""Query planning: the route of a question, and the calls that are made for it."""

from contextrouter.pipeline.planning.planner import MOST_DOCUMENTS, final_limit, make_plan

__all__ = ["MOST_DOCUMENTS", "final_limit", "make_plan"]
