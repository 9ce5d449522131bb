"""Step 6: the ranking stages, in turn. Each sees live envelopes only; the order it returns is the new rank.

A stage that fails or is late is skipped (or raised, as its `on_error` says) and the order before it stands.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic

import msgspec

from contextrouter.contracts import Stage, StageContext
from contextrouter.errors import ContractError, StageError
from contextrouter.model import Document, Envelope, Step
from contextrouter.pipeline.hit_validation import flaw
from contextrouter.pipeline.lanes import Lane, split
from contextrouter.runtime.masking import mask
from contextrouter.scope import Scope
from contextrouter.settings import StageKeys

SHOWN = 50
"""Documents whose place behind each step the trace keeps."""


async def rank(
    envelopes: Sequence[Envelope],
    stages: Mapping[str, Stage],
    context: StageContext,
    *,
    keys: Mapping[str, StageKeys] | None = None,
    deadline: float | None = None,
    steps: list[Step] | None = None,
    secrets: Sequence[str] = (),
    ready: Callable[[str, str], Awaitable[None]] | None = None,
) -> Lane:
    """Return the envelopes best first, those dropped (each with its reason) behind the live ones.

    `deadline` is on the loop's clock. `ready`, where given, opens a stage that is not open yet. `steps`,
    where given, gets one Step per stage; the last one in it made the order given. Raises StageError for a
    stage whose `on_error` is "raise".
    """
    before, gone = split(envelopes)
    live, dropped = list(before), list(gone)
    if steps:
        steps[-1] = steps[-1].replace(order=_order(live))
    for name, stage in stages.items():
        own = (keys or {}).get(name) or StageKeys()
        if not own.enabled:
            continue
        started = monotonic()
        note = ""
        lost: list[Envelope] = []
        try:
            if ready is not None:
                async with asyncio.timeout_at(deadline):
                    await ready("stage", name)
            live, lost = await _apply(name, stage, live, context, own, deadline)
        except Exception as error:
            why = (
                "timed out"
                if isinstance(error, TimeoutError)
                else mask(f"{type(error).__name__}: {error}", secrets)
            )
            if own.on_error == "raise":
                raise StageError(f"Stage {name!r} failed: {why}", plugin=name, kind="stage") from error
            note = f"failed: {why}"
            live, lost = _kept(name, live, own)
        dropped.extend(lost)
        if steps is not None:
            took = monotonic() - started
            steps.append(
                Step(name=name, elapsed=took, live=len(live), lost=tuple(lost), note=note, order=_order(live))
            )
    return Lane(live, dropped)


def _order(live: Sequence[Envelope]) -> tuple[str, ...]:
    return tuple([envelope.document.id or envelope.document.url for envelope in live[:SHOWN]])


async def _apply(
    name: str,
    stage: Stage,
    live: list[Envelope],
    context: StageContext,
    own: StageKeys,
    deadline: float | None,
) -> tuple[list[Envelope], list[Envelope]]:
    head, tail = (live, []) if own.top_n is None else (live[: own.top_n], live[own.top_n :])
    until = deadline
    if own.timeout is not None:
        mine = asyncio.get_running_loop().time() + own.timeout
        until = mine if deadline is None else min(mine, deadline)
    sealed: dict[int, Envelope] = {}

    def seal(*args: object, **kwargs: object) -> Envelope | None:
        envelope: Envelope | None = context.seal(*args, **kwargs)
        if envelope is not None:
            sealed[id(envelope.provenance)] = envelope
        return envelope

    if head:
        async with asyncio.timeout_at(until):
            returned = await stage.apply(tuple(head), _with_seal(name, context, seal))
    else:
        returned = ()
    went_on, lost = _sifted(name, head, list(returned), sealed, context.scope)
    kept, cut = _kept(name, went_on + tail, own)
    return kept, lost + cut


def _with_seal(name: str, context: StageContext, seal: Callable[..., Envelope | None]) -> StageContext:
    scores = partial(context.scores, name, context.scope) if context.scores else None
    return msgspec.structs.replace(context, seal=seal, scores=scores)


def _sifted(
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
    if found := flaw(document):
        raise ContractError(
            f"apply() returned a document that is none: {found}", law="documents enter whole", plugin=name
        )
    if scope is not None and not scope.allows(document):
        raise ContractError(
            "apply() returned a document outside the caller's scope",
            law="scope is never widened",
            plugin=name,
        )


def _kept(name: str, live: list[Envelope], own: StageKeys) -> tuple[list[Envelope], list[Envelope]]:
    if own.keep is None or len(live) <= own.keep:
        return live, []
    return live[: own.keep], [
        envelope.drop(f"{name}: not among the best {own.keep}") for envelope in live[own.keep :]
    ]
