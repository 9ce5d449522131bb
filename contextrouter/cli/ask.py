"""`contextrouter ask`: a question to an answer in words, with the documents that it cites."""

from __future__ import annotations

from typing import Annotated

import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import NOTHING, OK, SOURCES, command
from contextrouter.cli.views.screen import print_citation
from contextrouter.errors import AllSourcesFailed
from contextrouter.model import Answer, Request
from contextrouter.router import ContextRouter

_WHY = {
    "clarify": "The question has to be clearer, so it is asked back.",
    "gated": "What was found is not near enough to the question.",
    "empty": "No document answers this. Ask in other words, or see `contextrouter route` for what was found.",
    "declined": "The model declined to answer.",
}
Previous = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        metavar="QUESTION",
        help="A question that you asked before this one; repeat for several, oldest first.",
    ),
]


@command
async def ask(
    question: options.Question,
    settings: options.SettingsPath = options.DEFAULT,
    as_json: options.AsJson = False,
    after: Previous = None,
    source: options.Sources = None,
    mode: options.Mode = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = None,
    deadline: options.Deadline = None,
    tenant: options.Tenant = None,
    compartment: options.Compartments = None,
    ceiling: options.Ceiling = None,
) -> int:
    """Answer QUESTION in words, citing the documents that the answer comes from."""
    demands = options.Demands(source=source, mode=mode, since=since, until=until, limit=limit)
    scope = options.make_scope(tenant, compartment, ceiling)
    history = tuple({"role": "user", "content": text} for text in after or ())
    async with options.open_router(settings) as router:
        request = demands.request(question, scope, router.settings.rag.timezone)
        request = request.replace(history=history, deadline=deadline)
        try:
            answer = await (router.answer(request) if as_json else _print_stream(router, request))
        except AllSourcesFailed as failure:
            terminal.error(f"Every source failed: {failure}")
            return SOURCES
    if as_json:
        terminal.print_json(answer)
    else:
        _print_end(answer)
    return OK if answer.outcome == "answered" else NOTHING


async def _print_stream(router: ContextRouter, request: Request) -> Answer:
    """Print the text as it is written. Return the answer."""
    async for piece in router.answer_stream(request):
        if isinstance(piece, Answer):
            terminal.stdout().write("\n")
            return piece
        terminal.stdout().write(terminal.sanitize(piece))
        terminal.stdout().flush()
    raise AssertionError("a stream ends with its answer")


def _print_end(answer: Answer) -> None:
    """Print the documents that the answer cites, and what is to be known of it."""
    if answer.citations:
        terminal.stdout().write("\n")
    for citation in sorted(answer.citations, key=lambda citation: citation.number):
        print_citation(citation)
    if advice := _WHY.get(answer.outcome):
        terminal.say((advice, "yellow"))
    if answer.finish == "length":
        terminal.say(("The answer is cut: it reached [chat] synthesis_max_tokens.", "yellow"))
    if answer.note:
        terminal.say((answer.note, "yellow"))
    if answer.checks.get("language") is False:
        terminal.say(("The answer seems to be in another language than the question.", "yellow"))
