"""Ranking: the stages, in turn. Each sees live envelopes only; the order it returns is the new rank.

A stage that fails or is late is skipped (or raised, as its `on_error` says) and the order before it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from contextrouter.contracts import Stage, StageContext
from contextrouter.errors import ContractError, StageError
from contextrouter.model import Document, Envelope
from contextrouter.pipeline.admission import flaw_of
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.engine import Engine
from contextrouter.pipeline.envelopes import Ranking, split
from contextrouter.pipeline.trace import TraceBuilder, order_of
from contextrouter.runtime.masking import mask
from contextrouter.scope import Scope
from contextrouter.settings import StageKeys

Stages = Sequence[tuple[str, Stage, StageKeys]]
"""Name, stage and the router's own keys of its table, in the order in which they run:
`Engine.stages(rag)`.
"""


async def rank(
    envelopes: Sequence[Envelope],
    stages: Stages,
    context: StageContext,
    engine: Engine,
    deadline: Deadline | None = None,
    trace: TraceBuilder | None = None,
) -> Ranking:
    """Return the envelopes best first, those dropped (each with its reason) behind the live ones.

    `trace`, where given, gets a step for each stage. Raises StageError for a stage whose `on_error` is
    "raise".
    """
    deadline, trace = deadline or Deadline(), trace or TraceBuilder()
    before, gone = split(envelopes)
    live, dropped = list(before), list(gone)
    trace.keep_order(live)
    for name, stage, keys in stages:
        note, had = "", len(live)
        try:
            await engine.ensure_open("stage", name, deadline)
            live, lost = await _apply((name, stage, keys), live, context, deadline)
        except Exception as error:
            why = (
                "timed out"
                if isinstance(error, TimeoutError)
                else mask(f"{type(error).__name__}: {error}", engine.secrets)
            )
            if keys.on_error == "raise":
                raise StageError(f"Stage {name!r} failed: {why}", plugin=name, kind="stage") from error
            note = f"failed: {why}"
            live, lost = _keep(name, live, keys)
        dropped.extend(lost)
        gated = stage.withholds_facts and had > 0 and not live
        trace.add(
            name, len(live), tuple(lost), note=note, order=order_of(live), failed=bool(note), gated=gated
        )
    return Ranking(live, dropped)


async def _apply(
    stage_of: tuple[str, Stage, StageKeys], live: list[Envelope], context: StageContext, deadline: Deadline
) -> tuple[list[Envelope], list[Envelope]]:
    name, stage, keys = stage_of
    head, tail = (live, []) if keys.top_n is None else (live[: keys.top_n], live[keys.top_n :])
    sealed: dict[int, Envelope] = {}

    def seal(*args: object, **kwargs: object) -> Envelope | None:
        envelope: Envelope | None = context.seal(*args, **kwargs)
        if envelope is not None:
            sealed[id(envelope.provenance)] = envelope
        return envelope

    returned: Sequence[Envelope] = ()
    if head:
        async with deadline.within(keys.timeout).timeout():
            returned = await stage.apply(tuple(head), _with_seal(name, context, seal))
    went_on, lost = _check_returned(name, head, list(returned), sealed, context.scope)
    kept, cut = _keep(name, went_on + tail, keys)
    return kept, lost + cut


def _with_seal(name: str, context: StageContext, seal: Callable[..., Envelope | None]) -> StageContext:
    scores = partial(context.scores, name, context.scope) if context.scores else None
    return msgspec.structs.replace(context, seal=seal, scores=scores)


def _check_returned(
    name: str,
    given: Sequence[Envelope],
    returned: Sequence[Envelope],
    sealed: Mapping[int, Envelope],
    scope: Scope | None,
) -> tuple[list[Envelope], list[Envelope]]:
    """Sort what a stage returned into live and lost. Provenance is the router's seal: it can be carried on,
    not made.
    """
    there = {_text(envelope) for envelope in given} if sealed else set()
    known = {id(envelope.provenance): envelope for envelope in given}
    live: list[Envelope] = []
    lost: list[Envelope] = []
    seen: set[int] = set()
    for envelope in returned:
        if not isinstance(envelope, Envelope):
            raise ContractError(
                f"apply() returned {type(envelope).__name__} among envelopes",
                law="stages return envelopes",
                plugin=name,
            )
        mark = id(envelope.provenance)
        if mark in seen:
            raise ContractError("apply() returned an envelope twice", law="no envelope twice", plugin=name)
        if mark not in known and mark not in sealed:
            raise ContractError(
                "apply() returned an envelope the router did not seal",
                law="documents enter through seal()",
                plugin=name,
            )
        seen.add(mark)
        if mark in sealed and _text(envelope) in there:
            envelope = envelope.drop(f"{name}: brought in what was there already")
        elif mark in known and envelope.document is not known[mark].document:
            _check_document(name, envelope.document, scope)
        if not math.isfinite(envelope.score):
            raise ContractError(
                f"apply() returned the score {envelope.score!r}", law="scores are finite", plugin=name
            )
        (live if envelope.dropped is None else lost).append(envelope)
    lost.extend(envelope.drop(name) for mark, envelope in known.items() if mark not in seen)
    return live, lost


def _text(envelope: Envelope) -> tuple[str, str, str]:
    document = envelope.document
    return document.url, document.snippet, document.content


def _check_document(name: str, document: Document, scope: Scope | None) -> None:
    """A stage may put a fuller document into an envelope, but none that the caller may not see."""
    if flaw := flaw_of(document):
        raise ContractError(
            f"apply() returned a document that is none: {flaw}", law="documents enter whole", plugin=name
        )
    if scope is not None and not scope.allows(document):
        raise ContractError(
            "apply() returned a document outside the caller's scope",
            law="scope is never widened",
            plugin=name,
        )


def _keep(name: str, live: list[Envelope], own: StageKeys) -> tuple[list[Envelope], list[Envelope]]:
    if own.keep is None or len(live) <= own.keep:
        return live, []
    return live[: own.keep], [
        envelope.drop(f"{name}: not among the best {own.keep}") for envelope in live[own.keep :]
    ]
