"""What a chat or an answer is asked for over HTTP: the models of a caller, the order, and its context."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.answering import Conversation, Order
from contextrouter.answering.writing import compartment_generator
from contextrouter.contracts import Writing
from contextrouter.model import Context, Intent, Plan, Request, Trace, Usage
from contextrouter.server.auth import Caller
from contextrouter.server.chat_schema import ChatAsked
from contextrouter.server.endpoints import Exchange, ServerState
from contextrouter.server.error_responses import Refused
from contextrouter.server.router_endpoints import check_sources, retrieve
from contextrouter.settings import Chat

MODEL = "contextrouter"
"""The name of the model that every server has. The settings say which generator it stands for."""


def sole_generator(chat: Chat, caller: Caller) -> str | None:
    """Return the only generator that may write for this caller; None: the caller may choose.

    It is the one of the API key, else the one of a compartment that the caller may see.
    """
    return caller.generator or compartment_generator(chat, caller.scope)


def models_of(chat: Chat, caller: Caller) -> list[str]:
    """Return the models that this caller may name."""
    return [MODEL] if sole_generator(chat, caller) else [MODEL, *chat.models]


def unknown_model(model: str, models: Sequence[str]) -> Refused:
    """Return the refusal of a model that is not among those of the caller."""
    names = ", ".join(models)
    detail = f"The model {model!r:.300} does not exist or may not be used by this key. Models: {names}."
    return Refused(404, "model_not_found", detail, param="model")


def choose_generator(chat: Chat, caller: Caller, model: str) -> str:
    """Choose the generator of a request. Raises Refused (404) for a model that is not the caller's."""
    models = models_of(chat, caller)
    if model not in models:
        raise unknown_model(model, models)
    return (sole_generator(chat, caller) or chat.synthesis_model) if model == MODEL else model


def read_order(exchange: Exchange) -> Order:
    """Read a chat request. Raises Refused without a question, or for a model that the caller may not use."""
    body: ChatAsked = exchange.body
    turns = body.conversation()
    chat = exchange.server.settings.chat
    generator = choose_generator(chat, exchange.caller, body.model)
    index = max(i for i, turn in enumerate(turns) if turn["role"] == "user" and turn["content"].strip())
    conversation = Conversation(turns=turns, index=index)
    return Order(
        conversation=conversation,
        generator=generator,
        task=bool((body.metadata or {}).get("task")) or is_task(chat, conversation.question),
        writing=Writing(
            max_tokens=min([*body.most_tokens(), chat.synthesis_max_tokens]),
            temperature=body.temperature,
            top_p=body.top_p,
            stop=body.stops(),
        ),
    )


def is_task(chat: Chat, question: str) -> bool:
    """Whether a chat program asks for a title, tags or the like of a conversation, and not a person for an
    answer: by how such an order begins.
    """
    return question.lstrip().startswith(chat.task_prompts)


def make_request(server: ServerState, caller: Caller, conversation: Conversation) -> Request:
    """Make the router's request for a conversation: the beginning of the question is searched with."""
    sources = check_sources(caller, None)
    return Request(
        question=conversation.question[: server.settings.chat.max_query_chars],
        history=tuple(conversation.history),
        scope=caller.scope,
        sources=None if sources is None else tuple(sources),
    )


async def context_of(server: ServerState, caller: Caller, order: Order) -> Context:
    """Find the context of an order; nothing is searched for a task."""
    if not order.task:
        return await retrieve(server, make_request(server, caller, order.conversation))
    intent = Intent(question=order.conversation.question, should_search=False)
    plan = Plan(intent=intent)
    return Context(
        question=intent.question, intent=intent, outcome="not_searched", usage=Usage(), trace=Trace(plan=plan)
    )
