"""Lifecycle: one opening for all who wait, at once but in order, within its time; what failed is tried again
where it is used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from contextrouter import (
    Completion,
    ContextRouter,
    Envelope,
    Generator,
    Intent,
    Interpreter,
    InterpreterContext,
    MissingDependency,
    SettingsError,
    SourceError,
    Stage,
    StageContext,
)
from contextrouter.testing import Fixed, Ones


class Opening(Fixed):
    """Finds only when open; notes who opened when."""

    def __init__(
        self,
        *words: str,
        seconds: float = 0.0,
        until: asyncio.Event | None = None,
        fail: Exception | None = None,
        log: list[str] | None = None,
    ) -> None:
        super().__init__(*(words or ("x",)))
        self.seconds, self.until, self.fail = seconds, until, fail
        self.log = log if log is not None else []
        self.is_open, self.opens, self.ended = False, 0, 0
        self.begun = asyncio.Event()

    async def open(self) -> None:
        self.opens += 1
        self.begun.set()
        try:
            await asyncio.sleep(self.seconds)
            if self.until is not None:
                await self.until.wait()
        finally:
            self.ended += 1
        if self.fail:
            raise self.fail
        self.is_open = True

    async def aclose(self) -> None:
        self.is_open = False

    async def search(self, query):
        if not self.is_open:
            raise RuntimeError("asked before it was open")
        return await super().search(query)


class OpensLater(Interpreter):
    """Its first opening fails."""

    def __init__(self) -> None:
        self.opens = 0

    async def open(self) -> None:
        self.opens += 1
        if self.opens == 1:
            raise OSError("not up yet")

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        return intent.replace(attributes={**intent.attributes, "opens": self.opens})


async def test_requests_at_once_on_a_router_that_is_not_open_wait_for_one_opening():
    source = Opening(seconds=0.05)
    router = ContextRouter(connectors={"s": source})
    contexts = await asyncio.gather(*[router.route(f"x {i}") for i in range(3)])
    assert [context.outcome for context in contexts] == ["answered"] * 3
    assert source.opens == 1
    await router.aclose()


async def test_an_opening_that_fails_fails_for_all_who_wait_and_leaves_the_router_closed():
    good, bad = Opening(), Opening(seconds=0.02, fail=MissingDependency("x", "y"))
    router = ContextRouter(connectors={"g": good, "b": bad})
    ends = await asyncio.gather(*[router.route(f"x {i}") for i in range(2)], return_exceptions=True)
    assert [type(end) for end in ends] == [MissingDependency] * 2
    assert not good.is_open
    bad.fail = None
    assert (await router.route("x")).outcome == "answered"
    await router.aclose()


async def test_a_caller_that_leaves_does_not_stop_the_opening_for_others():
    """When the last caller leaves, the opening ends."""
    source = Opening(seconds=0.05)
    router = ContextRouter(connectors={"s": source})
    first, second = [asyncio.ensure_future(router.route(f"x {i}")) for i in range(2)]
    await source.begun.wait()
    first.cancel()
    assert (await second).outcome == "answered"
    await router.aclose()
    source.seconds = 60
    source.begun.clear()
    left = asyncio.ensure_future(router.route("x"))
    await source.begun.wait()
    left.cancel()
    await asyncio.wait([left], timeout=30)
    assert left.cancelled()
    assert source.opens == source.ended == 2


async def test_closing_during_the_opening_ends_it():
    source = Opening(seconds=60)
    router = ContextRouter(connectors={"s": source})
    request = asyncio.ensure_future(router.route("x"))
    await source.begun.wait()
    await router.aclose()
    assert source.ended == 1
    await asyncio.wait([request])


async def test_sources_are_opened_at_once_and_a_slow_one_holds_up_nobody_else(
    caplog: pytest.LogCaptureFixture,
):
    later = asyncio.Event()
    slow, slower = Opening("a", until=later), Opening("b", until=later)
    router = ContextRouter(
        {"rag": {"timeout_seconds": 0.3}}, connectors={"g": Opening("c"), "a": slow, "b": slower}
    )
    with caplog.at_level(logging.WARNING, "contextrouter"):
        await router.open()  # ends although the two never open by themselves
    assert slow.begun.is_set()
    assert slower.begun.is_set()
    assert "connector 'a' is still being opened" in caplog.text
    context = await router.route("x")
    assert [(r.source, r.status) for r in context.coverage] == [
        ("g", "ok"),
        ("a", "timeout"),
        ("b", "timeout"),
    ]
    later.set()  # the requests that gave up have not stopped it
    context = await router.route("x")
    assert {r.status for r in context.coverage} == {"ok"}
    assert slow.opens == slower.opens == 1
    await router.aclose()


class LateOnes(Ones):
    """An embedder whose first openings fail."""

    def __init__(self, failures: int = 1) -> None:
        super().__init__()
        self.failures = failures

    async def open(self) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("not up yet")


class NotesModel(Fixed):
    """A store that notes the models it hears of, and may refuse them."""

    embedder = "e"

    def __init__(self, *words: str, refuse: bool = False) -> None:
        super().__init__(*words)
        self.refuse, self.models = refuse, []

    async def embedded_by(self, model: str, dimensions: int) -> None:
        self.models.append((model, dimensions))
        if self.refuse:
            raise SourceError("filled by another model")


async def test_a_store_hears_of_its_model_once_when_both_are_open():
    store = NotesModel("x")
    async with ContextRouter(connectors={"s": store}, embedders={"e": Ones()}) as router:
        await router.route("x")
        await router.route("y")
        assert store.models == [(Ones.model, Ones().dimensions)]
        await router.aclose()
        await router.open()
        assert len(store.models) == 2


async def test_a_store_opens_without_its_embedder_and_hears_of_it_later():
    store, embedder = NotesModel("x"), LateOnes()
    async with ContextRouter(connectors={"s": store}, embedders={"e": embedder}) as router:
        assert store.models == []
        assert set(router.instances.closed) == {("embedder", "e")}
        assert (await router.route("x")).outcome == "answered"
        await router.instances.ready("embedder", "e")
        assert len(store.models) == 1
        assert not router.instances.closed


async def test_a_store_that_refuses_the_model_says_so_once_and_answers(caplog: pytest.LogCaptureFixture):
    store = NotesModel("x", refuse=True)
    with caplog.at_level(logging.WARNING, "contextrouter"):
        async with ContextRouter(connectors={"s": store}, embedders={"e": Ones()}) as router:
            assert (await router.route("x")).outcome == "answered"
    assert len(store.models) == 1
    assert caplog.text.count("filled by another model") == 1


async def test_an_interpreter_that_could_not_be_opened_is_tried_again_with_the_next_question():
    late = OpensLater()
    async with ContextRouter(connectors={"s": Fixed("x")}, interpreters={"i": late}) as router:
        assert (await router.route("x")).intent.attributes == {"opens": 2}
        assert (await router.route("y")).intent.attributes == {"opens": 2}


async def test_a_stage_that_could_not_be_opened_is_tried_again_and_skipped_until_then():
    class Late(Stage):
        opens = 0

        async def open(self) -> None:
            self.opens += 1
            if self.opens < 3:
                raise OSError("not up yet")

        async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
            return envelopes[:1]

    async with ContextRouter(connectors={"s": Fixed("x y")}, stages={"late": Late()}) as router:
        first, second = await router.route("x"), await router.route("y")
    assert [len(first.envelopes), len(second.envelopes)] == [2, 1]
    assert first.degraded
    assert not second.degraded


async def test_a_generator_that_failed_to_open_is_tried_again():
    """The interpreter that uses it gets it then."""

    class Model(Generator):
        opens = 0

        async def open(self) -> None:
            self.opens += 1
            if self.opens < 3:
                raise OSError("not up yet")

        async def complete(self, messages, *, schema=None) -> Completion:
            return Completion(text=f"opened {self.opens} times")

    class Uses(Interpreter):
        async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
            return intent.replace(attributes={"said": (await model.complete([])).text})

    model = Model()
    async with ContextRouter(
        connectors={"s": Fixed("x")}, generators={"m": model}, interpreters={"u": Uses()}
    ) as router:
        assert model.opens == 2
        assert (await router.route("x")).intent.attributes == {"said": "opened 3 times"}


NAMES = """
from contextrouter import Provider
class Store(Provider):
    is_open = False
    async def open(self): self.is_open = True
    async def search(self, query): return []
"""
WRAPS = """
from contextrouter import Document, Hit, Provider
class Wrap(Provider):
    def __init__(self, *, inner: Provider) -> None:
        self.inner = inner
    async def open(self):
        self.inner_was_open = self.inner.is_open
    is_open = True
    async def search(self, query): return [Hit(document=Document(id="1", content=str(self.inner_was_open)))]
"""


def wrapping(folder: Path, text: str) -> ContextRouter:
    (folder / "store.py").write_text(NAMES)
    (folder / "wrap.py").write_text(WRAPS)
    (folder / "settings.toml").write_text('[plugins]\npaths = ["."]\n' + text)
    return ContextRouter.from_toml(folder / "settings.toml")


@pytest.mark.parametrize(
    "text",
    [
        '[providers.wrap]\ninner = "store"\n[providers.store]\n',
        '[providers.store]\n[providers.wrap]\ninner = "store"\n',
    ],
)
async def test_a_provider_that_names_another_gets_that_one_open_wherever_it_stands(tmp_path: Path, text: str):
    async with wrapping(tmp_path, text) as router:
        assert router.instances.all["provider", "wrap"].inner is router.instances.all["provider", "store"]  # type: ignore[attr-defined]  # the plugin of this test has it
        context = await router.route("x")
    assert [envelope.document.content for envelope in context.envelopes] == ["True"]


@pytest.mark.parametrize(
    ("text", "circle"),
    [
        ('[providers.wrap]\ninner = "wrap"\n', "settings.toml:3: providers.wrap: .* circle: wrap -> wrap"),
        (
            '[providers.a]\nuse = "wrap"\ninner = "b"\n[providers.b]\nuse = "wrap"\ninner = "a"\n',
            "settings.toml:3: providers.a: .* circle: a -> b -> a",
        ),
    ],
)
def test_plugins_that_name_themselves_in_a_circle_are_an_error_with_its_line(
    tmp_path: Path, text: str, circle: str
):
    with pytest.raises(SettingsError, match=circle):
        wrapping(tmp_path, text)


def test_a_weight_for_an_unknown_leg_stops_the_start(tmp_path: Path):
    """The error names the line."""
    path = tmp_path / "settings.toml"
    path.write_text('[providers.docs]\nuse = "memory"\n[rag.leg_weights]\ntexd = 0.5\n"docs.text" = 1.0\n')
    with pytest.raises(
        SettingsError,
        match=r"settings.toml:4: rag.leg_weights.texd: no source has this leg. Did you mean 'text'",
    ):
        ContextRouter.from_toml(path)
