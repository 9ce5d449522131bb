"""The cache of a router: what is shared and what never is, what hits say of themselves, and each key of
`[cache]`.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.example import CommandLine
from support.resp import resp_server

from contextrouter import (
    AllSourcesFailed,
    Connector,
    Context,
    ContextRouter,
    Hit,
    Query,
    Request,
    Scope,
    SettingsError,
)
from contextrouter.cache import ResultCache, Tiers, Versions
from contextrouter.settings import Cache
from contextrouter.testing import Fixed, Legs, Ones, doc, hits

PLUGIN = """
from contextrouter import Connector, Document, Hit
class Counting(Connector):
    "Answers with how often it was asked."
    asked = 0
    def __init__(self, word: str = "x") -> None:
        self.word = word
    async def version(self) -> str:
        return "1"
    async def search(self, query):
        Counting.asked += 1
        scope = "" if query.scope is None else query.scope.tenant
        return [Hit(document=Document(content=f"{self.word} {scope} {Counting.asked}", tenant=scope))]
"""


def written(folder: Path, more: str = "", tier: str = 'tier = "disk"\npath = "kept"') -> Path:
    """A settings file with one source of its own, and a cache outside memory."""
    (folder / "plugins").mkdir(exist_ok=True)
    (folder / "plugins" / "counting.py").write_text(PLUGIN)
    path = folder / "settings.toml"
    path.write_text(f'[plugins]\npaths = ["plugins"]\n[cache]\n{tier}\n{more}\n[connectors.counting]\n')
    return path


async def ask(path: Path, question: str | Request = "q", **options: Any) -> Context:
    """Ask a router that lives for this question alone."""
    scope = options.pop("scope", None)
    async with ContextRouter.from_toml(path, **options) as router:
        return await router.route(question, scope=scope)


async def test_a_hit_says_so_in_context_trace_and_usage():
    async with ContextRouter(connectors={"a": Fixed("x y")}) as router:
        first = await router.route("q")
        second = await router.route("q")
    assert (first.usage.cache, first.usage.calls, first.cached, first.trace.steps[0].name) == (
        "",
        1,
        False,
        "interpret",
    )
    assert (second.usage.cache, second.usage.calls, second.usage.hits, second.usage.embedded) == (
        "memory",
        0,
        0,
        0,
    )
    assert (second.cached, second.usage.tokens) == (True, first.usage.tokens)
    step = second.trace.steps[0]
    assert (step.name, step.note, step.live) == ("cache", "memory", 2)
    assert second.trace.steps[1:] == first.trace.steps


async def test_an_answer_outlives_its_process_on_disk_and_says_where_it_was(tmp_path: Path):
    path = written(tmp_path)
    first = await ask(path)
    async with ContextRouter.from_toml(path) as router:
        second, third = await router.route("q"), await router.route("q")
    assert (first.usage.cache, second.usage.cache, third.usage.cache) == ("", "disk", "memory")
    assert second.text == first.text
    assert second.envelopes == first.envelopes
    assert (second.trace.steps[0].note, second.usage.seconds > 0) == ("disk", True)
    assert [step.name for step in second.trace.steps[1:]] == [step.name for step in first.trace.steps]


async def test_redis_is_shared_and_its_absence_costs_no_answer(tmp_path: Path):
    async with resp_server() as server:
        path = written(tmp_path, tier=f'tier = "redis"\nurl = "{server.url}"\ntimeout_seconds = 1.0')
        assert [(await ask(path)).usage.cache for _ in range(2)] == ["", "redis"]
        await server.stop()
        assert (await ask(path)).usage.cache == ""
        await server.start()


DIFFERENT: dict[str, dict[str, Any]] = {
    "scope": {"scope": Scope()},
    "tenant": {"scope": Scope(tenant="t")},
    "a setting": {"rag__candidates": 7},
    "a source's setting": {"connectors__counting__word": "y"},
    "namespace": {"cache__namespace": "other"},
    "secret": {"cache__secret": "of the test"},
    "question": {"question": "r"},
}


@pytest.mark.parametrize("what", DIFFERENT)
async def test_what_differs_is_never_a_hit_outside_memory_either(what: str, tmp_path: Path):
    path = written(tmp_path)
    await ask(path)
    assert not (await ask(path, **DIFFERENT[what])).cached
    assert (await ask(path)).cached


async def test_another_version_of_the_package_is_never_a_hit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = written(tmp_path)
    await ask(path)
    monkeypatch.setattr("contextrouter.router.VERSION", "0.0.0")
    assert not (await ask(path)).cached


async def test_instances_made_by_hand_share_with_no_other_router(tmp_path: Path):
    options = {"cache": {"tier": "disk", "path": str(tmp_path)}}
    source = Fixed("a")
    for _ in range(2):
        async with ContextRouter(options, connectors={"a": source}) as router:
            assert not (await router.route("q")).cached
            assert (await router.route("q")).cached
    assert len(source.queries) == 2


async def test_an_answer_from_disk_keeps_its_expiry_in_memory(tmp_path: Path):
    """It lives in memory no longer than it would on disk."""
    path = written(tmp_path)
    options = {"rag__cache_ttl_seconds": 2.0}
    await ask(path, **options)
    async with ContextRouter.from_toml(path, **options) as router:
        await asyncio.sleep(0.7)
        assert [(await router.route("q")).usage.cache for _ in range(2)] == ["disk", "memory"]
        await asyncio.sleep(1.4)
        assert (await router.route("q")).usage.cache == ""


async def test_relative_paths_without_a_settings_file_are_those_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    options = {"cache": {"tier": "disk", "path": str(tmp_path)}, "connectors": {"files": {"path": "notes"}}}
    found = []
    for name in ("a", "b", "a"):
        (tmp_path / name / "notes").mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "notes" / "x.txt").write_text(f"the word of {name}")
        os.utime(tmp_path / name / "notes" / "x.txt", (1, 1))
        monkeypatch.chdir(tmp_path / name)
        async with ContextRouter(options) as router:
            context = await router.route("word")
            found.append((context.usage.cache, context.envelopes[0].document.content))
    assert found == [("", "the word of a"), ("", "the word of b"), ("disk", "the word of a")]


async def test_a_new_day_is_a_new_key_in_the_same_router():
    cache = ResultCache(Tiers(10), router=b"", ttl=1)
    versions: dict[str, str] = {}
    first, second = (cache.key(Request(question="q"), date(2026, 5, day), versions) for day in (1, 2))
    assert first != second


scopes = st.none() | st.builds(
    Scope,
    tenant=st.sampled_from([None, "a", "b"]),
    compartments=st.frozensets(st.sampled_from("xy")),
    ceiling=st.sampled_from(["public", "restricted"]),
)


class Echo(Connector):
    """Answers with the scope it was asked in."""

    async def search(self, query: Query) -> Sequence[Hit]:
        return [Hit(document=doc("d", content=repr(spoken(query.scope))))]


def spoken(scope: Scope | None) -> object:
    return scope and (scope.tenant, sorted(scope.compartments), scope.ceiling)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("qr"), scopes), min_size=2, max_size=12))
@pytest.mark.case("CAC-07")
def test_no_scope_ever_gets_an_answer_made_for_another(asked: list[tuple[str, Scope | None]]):
    async def run() -> None:
        async with ContextRouter({"connectors": {"e": {"tenant": "*"}}}, connectors={"e": Echo()}) as router:
            for question, scope in asked:
                profile = {
                    "tenant": "b",
                    "x-organization-id": "b",
                }  # what a client says of itself is no scope
                context = await router.route(Request(question=question, scope=scope, profile=profile))
                assert context.envelopes[0].document.content == repr(spoken(scope))

    asyncio.run(run())


@pytest.mark.case("CAC-09")
async def test_no_caller_can_change_what_the_next_one_gets():
    async with ContextRouter(connectors={"a": Fixed("x y")}) as router:
        made = await router.route("q")
        for context in (made, await router.route("q")):
            with pytest.raises(AttributeError):
                context.text = "poison"  # type: ignore[misc]  # frozen: that is the test
            with pytest.raises(AttributeError):
                context.envelopes[0].document.content = "poison"  # type: ignore[misc]  # frozen: that is the test
            assert isinstance(context.envelopes, tuple)
        assert (await router.route("q")).text == made.text


async def test_a_thousand_equal_questions_at_once_are_one_computation_and_any_may_leave():
    source = Fixed("a", delay=0.05)
    async with ContextRouter(connectors={"a": source}) as router:
        tasks = [asyncio.create_task(router.route("q")) for _ in range(1000)]
        await asyncio.sleep(0.02)
        for task in tasks[::3]:
            task.cancel()
        await asyncio.wait(tasks)
        stayed = [task.result() for index, task in enumerate(tasks) if index % 3]
        assert len(source.queries) == 1
        assert {context.usage.cache for context in stayed} == {"joined"}
        assert {context.text for context in stayed} == {(await router.route("q")).text}


class Versioned(Fixed):
    """Says its version as often as it is asked."""

    def __init__(self, delay: float = 0.0) -> None:
        super().__init__("a")
        self.version_delay, self.polls = delay, 0

    async def version(self) -> str:
        self.polls += 1
        await asyncio.sleep(self.version_delay)
        return "1"


async def test_many_callers_ask_a_source_for_its_version_once():
    source = Versioned(0.01)
    versions = Versions({"a": source}, 60)
    found = await asyncio.gather(*(versions.now() for _ in range(200)))
    assert found == [{"a": "1"}] * 200
    assert source.polls == 1


async def test_nothing_is_kept_while_a_source_has_not_said_its_version():
    source = Versioned(5)
    async with ContextRouter({"cache": {"version_seconds": 0}}, connectors={"a": source}) as router:
        await router.route("q")
        source.version_delay = 0
        assert not (await router.route("q")).cached
        assert (await router.route("q")).cached


def store(embedder: str = "e") -> Legs:
    return Legs({"vector": hits("a"), "text": hits("b")}, embedder)


class Model(Ones):
    """Embeds a text as its length and a third; its vectors are lists the caller could write to."""

    model = "of the test"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Sequence[float]]:
        await super().embed(texts, query=query)
        return [[float(len(text)), 1 / 3] for text in texts]


ONE = {"rag": {"max_retrieval_queries": 1}}


async def test_a_text_is_embedded_once_whatever_the_scope_and_usage_counts_it():
    model, index = Model(), store()
    async with ContextRouter(ONE, providers={"p": index}, embedders={"e": model}) as router:
        first = await router.route("why so")
        second = await router.route("why so", scope=Scope())
        third = await router.route("why so")
        await router.route("other")
    assert model.asked == [["why so"], ["other"]]
    assert [context.usage.embedded for context in (first, second, third)] == [1, 0, 0]
    assert [context.usage.cache for context in (first, second, third)] == ["", "", "memory"]


async def test_a_cached_vector_is_bit_identical_and_nobody_can_change_it():
    """A vector from the cache equals a new one."""
    index = store()
    async with ContextRouter(ONE, providers={"p": index}, embedders={"e": Model()}) as router:
        await router.route("why")
        vectors = [query.vector for query in index.queries if query.leg == "vector"]
        vectors[0][0] = 99.0  # type: ignore[index]  # the leg asks with a vector
        await router.route("why", scope=Scope())
    third = array("f", [1 / 3])[0]
    assert [query.vector for query in index.queries if query.leg == "vector"][1] == [3.0, third]
    assert vectors[0][1] == third  # type: ignore[index]  # the leg asks with a vector


async def test_embeddings_outlive_the_process_by_model_and_not_by_another(tmp_path: Path):
    options = {**ONE, "cache": {"tier": "disk", "path": str(tmp_path)}}

    async def embedded(model: Ones) -> int:
        async with ContextRouter(options, providers={"p": store()}, embedders={"e": model}) as router:
            return (await router.route("why")).usage.embedded

    other, nameless = Model(), Model()
    other.model, nameless.model = "another", ""
    assert [await embedded(model) for model in (Model(), Model(), other, nameless, nameless)] == [
        1,
        0,
        1,
        1,
        1,
    ]


@pytest.mark.parametrize("bad", [[1.0], [1.0, float("nan")], [1e300, 0.0], ["x", "y"]], ids=str)
async def test_a_vector_that_is_none_is_handed_on_as_it_is_and_not_kept(bad: Any):
    class Bad(Ones):
        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Sequence[float]]:
            await super().embed(texts, query=query)
            return [bad for _ in texts]

    model, index = Bad(), store()
    async with ContextRouter(ONE, providers={"p": index}, embedders={"e": model}) as router:
        await router.route("why")
        await router.route("why", scope=Scope())
    assert len(model.asked) == 2
    assert next(query.vector for query in index.queries if query.leg == "vector") is bad


async def tier_of(folder: Path, **cache: Any) -> list[str]:
    """Which tier answers the second of two routers."""
    path = written(folder)
    return [
        (await ask(path, **{f"cache__{key}": value for key, value in cache.items()})).usage.cache
        for _ in range(2)
    ]


async def test_key_tier_path_and_namespace_say_where(tmp_path: Path):
    assert await tier_of(tmp_path, tier="memory") == ["", ""]
    assert await tier_of(tmp_path, namespace="mine") == ["", "disk"]
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["mine"]
    assert await tier_of(tmp_path, path=str(tmp_path / "there")) == ["", "disk"]
    assert (tmp_path / "there" / "default" / "cache.db").exists()


async def test_key_secret_signs_what_lies_outside(tmp_path: Path):
    path = written(tmp_path)
    async with ContextRouter.from_toml(path) as router:
        key = router._results.key(Request(question="q"), *await today(router))
        await router.route("q")
    async with ContextRouter.from_toml(path, cache__secret="of the test") as router:
        assert await router.cache.fetch(key or b"", bytes) is None
        assert (await router.cache.stats())[1].rejected == 1


async def today(router: ContextRouter) -> tuple[Any, Any]:
    return router.engine.now().date(), await router._versions.now()


async def test_key_max_bytes_bounds_memory():
    async with ContextRouter({"cache": {"max_bytes": 1000}}, connectors={"a": Fixed("a")}) as router:
        assert [(await router.route("q")).cached for _ in range(2)] == [False, False]
        assert (await router.cache.stats())[0].max_bytes == 1000


async def test_key_disk_max_bytes_bounds_the_disk(tmp_path: Path):
    assert await tier_of(tmp_path, disk_max_bytes=100) == ["", ""]


async def test_key_embeddings_false_embeds_every_time():
    for options, times in (
        ({}, 1),
        ({"cache": {"embeddings": False}}, 2),
        ({"rag": {"cache_enabled": False}}, 2),
    ):
        model = Model()
        async with ContextRouter(options, providers={"p": store()}, embedders={"e": model}) as router:
            await router.route("why")
            await router.route("why", scope=Scope())
        assert len(model.asked) == times


async def test_key_embedding_ttl_seconds_ends_what_is_kept():
    model = Model()
    options = {"cache": {"embedding_ttl_seconds": 0.05}}
    async with ContextRouter(options, providers={"p": store()}, embedders={"e": model}) as router:
        await router.route("why")
        await asyncio.sleep(0.08)
        await router.route("why", scope=Scope())
    assert len(model.asked) == 2


async def test_key_timeout_seconds_bounds_what_a_slow_redis_costs(tmp_path: Path):
    async with resp_server() as server:
        server.hang = True
        path = written(tmp_path, tier=f'tier = "redis"\nurl = "{server.url}"\ntimeout_seconds = 0.05')
        async with asyncio.timeout(30):
            assert (await ask(path)).usage.cache == ""


WRONG: dict[str, tuple[str, str]] = {
    "no path": ('tier = "disk"', r"settings.toml:4: cache.path: tier = 'disk' needs the path of a folder"),
    "no url": ('tier = "redis"', r"settings.toml:4: cache.url: tier = 'redis' needs the url of a server"),
    "no such url": (
        'tier = "redis"\nurl = "http://x"',
        r"settings.toml:5: cache.url: tier = 'redis' needs the url",
    ),
    "namespace": ('namespace = "../x"', r"settings.toml:4: cache.namespace:"),
    "tier": ('tier = "dsk"', r"Did you mean 'disk'\?"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_keys_are_said_with_their_line(what: str, tmp_path: Path):
    tier, message = WRONG[what]
    with pytest.raises(SettingsError, match=message):
        ContextRouter.from_toml(written(tmp_path, tier=tier))


async def test_an_impossible_port_in_the_url_is_said_when_it_is_opened(tmp_path: Path):
    router = ContextRouter.from_toml(
        written(tmp_path, tier='tier = "redis"\nurl = "redis://:hunter22@host:x/0"')
    )
    with pytest.raises(SettingsError, match=r"cache.url: url is none of a Redis server") as caught:
        await router.open()
    assert "hunter22" not in str(caught.value)


def test_every_key_of_the_section_has_its_test():
    here = Path(__file__).read_text("utf-8")
    tests = [line for line in here.splitlines() if "def test_key_" in line]
    elsewhere = {"version_seconds", "url"}  # test_router: a source's new version; above: redis is shared
    assert [
        name
        for name in Cache.__struct_fields__
        if name not in elsewhere and not any(name in line for line in tests)
    ] == []


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def test_the_command_line_shows_and_empties_what_outlived_its_process(
    cli: Callable[..., Any], tmp_path: Path
):
    import json

    written(tmp_path)
    assert "from the cache" not in cli("route", "q", cwd=tmp_path).out
    assert "from the cache" in cli("route", "q", cwd=tmp_path).out
    memory, disk = json.loads(cli("cache", "stats", "--json", cwd=tmp_path).out)
    assert (memory["tier"], disk["tier"], disk["entries"], disk["max_bytes"]) == (
        "memory",
        "disk",
        1,
        1_000_000_000,
    )
    shown = cli("cache", "stats", cwd=tmp_path).out.split()
    assert shown[shown.index("disk") + 1] == "1"
    assert cli("cache", "clear", cwd=tmp_path).out.strip() == "1 entry removed from disk."
    assert json.loads(cli("cache", "clear", "--json", cwd=tmp_path).out) == {"tier": "disk", "entries": 0}
    assert "from the cache" not in cli("route", "q", cwd=tmp_path).out


def test_the_command_line_says_when_the_tier_cannot_be_used(cli: Callable[..., Any], tmp_path: Path):
    written(tmp_path, tier='tier = "redis"\nurl = "redis://user:hunter22@127.0.0.1:1/0"')
    ran = cli("cache", "stats", cwd=tmp_path)
    assert ran.code == 5
    assert "Cache tier 'redis' cannot be used" in ran.err
    assert "hunter22" not in ran.err


class Attribute(Fixed):
    version = "1.0"


class Raising(Fixed):
    def version(self) -> str:
        raise OSError("no")


class Plain(Fixed):
    def version(self) -> str:
        return "1"


class Wrong(Fixed):
    async def version(self) -> int:
        return 1


async def test_an_attribute_called_version_is_no_version_of_the_content():
    async with ContextRouter(connectors={"a": Attribute("a")}) as router:
        await router.route("q")
        assert (await router.route("q")).cached


@pytest.mark.parametrize("source", [Raising, Plain, Wrong])
async def test_a_source_with_an_invalid_version_is_never_cached(
    source: type[Fixed], caplog: pytest.LogCaptureFixture
):
    """The version decides the key of the cache."""
    async with ContextRouter({"cache": {"version_seconds": 0}}, connectors={"a": source("a")}) as router:
        for _ in range(3):
            context = await router.route("q")
            assert (context.outcome, context.cached) == ("answered", False)
    assert [r.message.partition(" (")[0] for r in caplog.records] == ["Source 'a' does not say its version"]


async def test_a_slow_version_takes_a_share_of_an_impatient_caller_s_time_alone():
    async with ContextRouter({"cache": {"version_seconds": 0}}, connectors={"a": Versioned(60)}) as router:
        async with asyncio.timeout(30):
            assert (await router.route("q", deadline=0.5)).outcome == "answered"


@pytest.mark.case("CAC-11")
async def test_who_joins_a_question_and_has_time_left_is_answered_in_full():
    slow = Fixed("a", delay=0.3)
    async with ContextRouter({}, connectors={"slow": slow}) as router:
        hurried = asyncio.create_task(router.route("q", deadline=0.1))
        others = [asyncio.create_task(router.route("q", deadline=20)) for _ in range(3)]
        with pytest.raises(AllSourcesFailed):
            await hurried
        contexts = [await other for other in others]
    assert [context.degraded for context in contexts] == [False] * 3
    assert [len(context.envelopes) for context in contexts] == [1] * 3


@pytest.mark.case("CAC-11")
async def test_a_degraded_answer_of_a_hurried_caller_is_not_that_of_others():
    sources = {"fast": Fixed("a"), "slow": Fixed("b", delay=0.3)}
    async with ContextRouter({}, connectors=sources) as router:
        hurried = asyncio.create_task(router.route("q", deadline=0.1))
        patient = asyncio.create_task(router.route("q", deadline=20))
        assert (await hurried).degraded
        context = await patient
    assert not context.degraded
    assert len(context.envelopes) == 2
