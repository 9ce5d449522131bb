"""Ranking (step 9): runs the stages, such as rerankers, in order. Each one sees the live envelopes only.

A stage that fails or is late is skipped (or raised, as its `on_error` says) and the order before it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from contextrouter.contracts import Stage, StageContext
from contextrouter.errors import ContractError, StageError
from contextrouter.model import Document, Envelope
from contextrouter.pipeline.admission import flaw_of
from contextrouter.pipeline.call_limits.blocking import Steps
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.engine import Engine
from contextrouter.pipeline.envelopes import Ranking, split
from contextrouter.pipeline.trace import StageNotes, TraceBuilder, order_of
from contextrouter.runtime.abandoned_calls import AbandonedCalls
from contextrouter.runtime.masking import mask
from contextrouter.runtime.plugin_calls import text_of
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
        failure, notes = "", StageNotes(engine.secrets)
        try:
            await engine.ensure_open("stage", name, deadline)
            live, lost, failure = await _apply(
                (name, stage, keys),
                live,
                msgspec.structs.replace(context, note=notes.add),
                deadline,
                engine.limits.abandoned.of("stage", name),
            )
        except Exception as error:
            reason = (
                "timed out"
                if isinstance(error, TimeoutError)
                else mask(f"{type(error).__name__}: {text_of(error)}", engine.secrets)
            )
            if keys.on_error == "raise":
                raise StageError(f"Stage {name!r} failed: {reason}", plugin=name, kind="stage") from error
            failure = f"failed: {reason}"
            live, lost = _keep(name, live, keys)
        dropped.extend(lost)
        gated = stage.withholds_facts and not live
        note, failed = notes.join(failure), bool(failure)
        trace.add(name, len(live), tuple(lost), note=note, order=order_of(live), failed=failed, gated=gated)
    return Ranking(live, dropped)


async def _apply(
    stage_of: tuple[str, Stage, StageKeys],
    live: list[Envelope],
    context: StageContext,
    deadline: Deadline,
    abandoned: AbandonedCalls,
) -> tuple[list[Envelope], list[Envelope], str]:
    """Return the live envelopes, the lost ones, and how the stage made the answer late; empty: it did not."""
    name, stage, keys = stage_of
    head, tail = (live, []) if keys.top_n is None else (live[: keys.top_n], live[keys.top_n :])
    sealed: dict[int, Envelope] = {}

    def seal(*args: object, **kwargs: object) -> Envelope | None:
        envelope: Envelope | None = context.seal(*args, **kwargs)
        if envelope is not None:
            sealed[id(envelope.provenance)] = envelope
        return envelope

    returned: Sequence[Envelope] = ()
    late = ""
    if head:
        until = deadline.within(keys.timeout)
        steps = Steps(stage.apply(tuple(head), _stage_view(name, context, seal)))
        returned = await until.run(steps, abandoned)
        late = steps.blocked(until)
    went_on, lost = _check_returned(name, head, returned, sealed, context.scope)
    live_now, cut = _keep(name, went_on + tail, keys)
    return live_now, lost + cut, late


def _stage_view(name: str, context: StageContext, seal: Callable[..., Envelope | None]) -> StageContext:
    scores = partial(context.scores, name, context.scope) if context.scores else None
    return msgspec.structs.replace(context, seal=seal, scores=scores)


def _check_returned(
    name: str,
    before: Sequence[Envelope],
    returned: object,
    sealed: Mapping[int, Envelope],
    scope: Scope | None,
) -> tuple[list[Envelope], list[Envelope]]:
    """Sort what a stage returned into live and lost. Provenance is the router's seal: it can be carried on,
    not made.
    """
    if not isinstance(returned, Iterable):
        message = f"apply() returned {type(returned).__name__}, not a list of envelopes"
        raise ContractError(message, law="stages return envelopes", plugin=name)
    texts = {_text(envelope) for envelope in before} if sealed else set()
    before_by_seal = {id(envelope.provenance): envelope for envelope in before}
    live: list[Envelope] = []
    lost: list[Envelope] = []
    returned_seals: set[int] = set()
    for envelope in returned:
        if not isinstance(envelope, Envelope):
            raise ContractError(
                f"apply() returned {type(envelope).__name__} among envelopes",
                law="stages return envelopes",
                plugin=name,
            )
        seal_id = id(envelope.provenance)
        if seal_id in returned_seals:
            raise ContractError("apply() returned an envelope twice", law="no envelope twice", plugin=name)
        if seal_id not in before_by_seal and seal_id not in sealed:
            raise ContractError(
                "apply() returned an envelope the router did not seal",
                law="documents enter through seal()",
                plugin=name,
            )
        returned_seals.add(seal_id)
        if seal_id in sealed and _text(envelope) in texts:
            envelope = envelope.drop(f"{name}: brought in what was there already")
        elif seal_id in before_by_seal and envelope.document is not before_by_seal[seal_id].document:
            _check_document(name, envelope.document, scope)
        if not math.isfinite(envelope.score):
            raise ContractError(
                f"apply() returned the score {envelope.score!r}", law="scores are finite", plugin=name
            )
        (live if envelope.dropped is None else lost).append(envelope)
    lost.extend(
        envelope.drop(name) for seal_id, envelope in before_by_seal.items() if seal_id not in returned_seals
    )
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


def _keep(name: str, live: list[Envelope], keys: StageKeys) -> tuple[list[Envelope], list[Envelope]]:
    if keys.keep is None or len(live) <= keys.keep:
        return live, []
    return live[: keys.keep], [
        envelope.drop(f"{name}: not among the best {keys.keep}") for envelope in live[keys.keep :]
    ]
