"""Answering: from a context to a cited answer. The router's `answer` and the server's chat are this code."""

from contextrouter.answering.answers import Answering, to_answer, visible_pieces
from contextrouter.answering.conversation import Conversation, Draft, Order

__all__ = ["Answering", "Conversation", "Draft", "Order", "to_answer", "visible_pieces"]
