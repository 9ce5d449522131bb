"""A tenant neither reads, overwrites nor infers what is another's: by the query's own filter, and by
row-level security alone.
"""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.postgres_server import open_store, run, schema

from contextrouter import ContextRouter, Interpreter, InterpreterContext
from contextrouter.builtin.facts import postgres as postgres_facts
from contextrouter.builtin.facts.postgres import PostgresFacts
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.builtin.providers.postgres import filter as postgres_filter
from contextrouter.builtin.providers.postgres import lookup as postgres_lookup
from contextrouter.builtin.providers.postgres import nomination as postgres_nomination
from contextrouter.builtin.providers.postgres import text_leg as postgres_text
from contextrouter.cache import source_versions
from contextrouter.contracts import Entry
from contextrouter.errors import SourceError
from contextrouter.model import Document, Fact, Intent, Query, Request
from contextrouter.pipeline import term_statistics
from contextrouter.scope import SHARED, Scope
from contextrouter.testing.fakes import Hashing

CANARY = "zebra7q"
SCOPE = Scope(tenant="a", compartments=frozenset({"hr"}), ceiling="internal")
_WORDS = ["sun", "moon", "tide", "comet"]


def told(document: Document, *, secret: bool = False) -> Entry:
    """An entry that says its words everywhere it can; a secret one says the canary, too."""
    mark = f" {CANARY}" if secret else ""
    full = document.replace(
        content=document.content + mark,
        title=document.title + mark,
        path=(*document.path, f"path{mark}"),
        url=document.url,
        labels=("sky", *([CANARY] if secret else [])),
        metadata={"topic": CANARY if secret else "sky"},
        snippet=f"about{mark}",
        keywords=(f"key{mark}",),
    )
    facts = (
        Fact(subject="sun", predicate="raises", object=CANARY if secret else "tide"),
        Fact(
            subject=CANARY if secret else "tide",
            predicate="seen_by",
            object="moon",
            attributes={"said": mark},
        ),
    )
    vector = _vector(document.content)
    vectors = {leg: [vector] for leg in ("vector", "keywords")}
    return Entry(document=full, chunks=[full], vectors=vectors, facts=facts)


def _vector(text: str) -> list[float]:
    return [1.0 + text.count(word) for word in _WORDS] + [1.0] * 12


_TEXTS = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=6).map(" ".join)
_OPEN = st.builds(
    Document,
    content=_TEXTS,
    title=_TEXTS,
    tenant=st.sampled_from(["a", SHARED]),
    compartment=st.sampled_from([None, "hr"]),
    sensitivity=st.sampled_from([None, "public", "internal"]),
)
_TENANTS = st.builds(Document, content=_TEXTS, title=_TEXTS, tenant=st.sampled_from(["b", None, "A", "a "]))
_LABELS = st.builds(
    Document,
    content=_TEXTS,
    title=_TEXTS,
    tenant=st.sampled_from(["a", SHARED]),
    compartment=st.sampled_from(["legal", "HR"]),
) | st.builds(
    Document,
    content=_TEXTS,
    title=_TEXTS,
    tenant=st.sampled_from(["a", SHARED]),
    sensitivity=st.sampled_from(["confidential", "restricted", "unheard-of"]),
)


class Wanting(Interpreter):
    """Asks for everything a source can answer with."""

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Facets of every dimension, and entities; the canary's when the question knows it."""
        names = ("sun", CANARY) if CANARY in intent.question else ("sun",)
        return intent.replace(
            facets=("kind", "labels", "topic", "title", "subject", "object"), lookup="broad", entities=names
        )


MORE = [
    {"id": "more", "content": "The comet and the tide.", "tenant": "a"},
    {"id": "sun", "content": "One sun.", "tenant": SHARED},
]
"""What a second store holds, so that there is something to calibrate."""


def _router(store: Postgres, exact_below: int) -> ContextRouter:
    docs = Postgres(dsn=store.pool.dsn, schema=store.pool.schema, exact_below=exact_below)
    rag = {
        "interpreters": ["wanting"],
        "cache_enabled": True,
        "timeout_seconds": 30.0,
        "general_retrieval_final_count": 30,
    }
    return ContextRouter(
        settings={"rag": rag},
        providers={"docs": docs, "more": Memory(documents=MORE)},
        facts={"graph": PostgresFacts(store=docs, hops=3)},
        interpreters={"wanting": Wanting()},
        embedders={"default": Hashing(dimensions=16)},
    )


_TIMES = {"elapsed", "retrieved_at", "seconds", "deadline", "started"}


def _all_of(context: Any) -> str:
    """Everything a caller is told, a line each; when it was told, and how long that took, is left out."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bare(held) for key, held in value.items() if key not in _TIMES}
        return [bare(each) for each in value] if isinstance(value, list) else value

    plain = msgspec.json.encode(
        context, enc_hook=lambda held: list(held) if isinstance(held, Iterable) else ""
    )
    return json.dumps(bare(msgspec.json.decode(plain)), indent=0)


async def _told_to(store: Postgres, entries: list[Entry], question: str, exact_below: int) -> str:
    """All that a caller of the scope is told, twice, after another tenant asked the same."""
    await store.clear()
    await store.upsert(entries)
    async with _router(store, exact_below) as router:
        await router.route(Request(question=question, scope=Scope(tenant="b", ceiling="restricted")))
        first, again = [await router.route(Request(question=question, scope=SCOPE)) for _ in range(2)]
    assert again.cached
    assert {call.query.scope for call in first.trace.plan.calls} == {
        SCOPE
    }  # the filter of each call can be looked up
    return _all_of(first) + _all_of(again)


@pytest.mark.parametrize("exact_below", [0, 10_000])
@pytest.mark.case("ACL-02")
def test_what_others_have_changes_nothing_of_what_a_caller_is_told(
    exact_below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every leg, facts, facets, entities, trace, cache and errors: the same to the last score without the
    others' rows.
    """
    for module in (
        source_versions,
        term_statistics,
    ):  # on a busy machine a version or a count comes late, which changes what is told
        monkeypatch.setattr(module, "PATIENCE", 30.0)

    async def compare(store: Postgres, mine: list[Document], others: list[Document], question: str) -> None:
        seen = [told(each.replace(id=f"m{n}")) for n, each in enumerate(mine)]
        hidden = []
        for n, each in enumerate(others):  # ids that are taken, where the tenant is another
            name = "h" if each.tenant in ("a", SHARED) else "m"
            hidden.append(told(each.replace(id=f"{name}{n}"), secret=True))
        together = await _told_to(store, [*seen, *hidden], question, exact_below)
        assert together.count(CANARY) == 0 or CANARY in question
        alone = await _told_to(store, seen, question, exact_below)
        assert list(difflib.unified_diff(alone.splitlines(), together.splitlines(), n=2, lineterm="")) == []

    with asyncio.Runner() as runner:
        context = open_store()
        store = runner.run(context.__aenter__())

        @settings(max_examples=8, deadline=None)
        @given(
            mine=st.lists(_OPEN, min_size=1, max_size=4),
            others=st.lists(_TENANTS | _LABELS, min_size=1, max_size=6),
            question=st.sampled_from(["sun and moon", f"sun {CANARY}", "comet -tide", '"sun moon" OR tide']),
        )
        def nothing_changes(**drawn: Any) -> None:
            runner.run(compare(store, **drawn))

        nothing_changes()
        runner.run(context.__aexit__(None, None, None))


async def test_a_tenant_neither_overwrites_nor_removes_what_is_another_s() -> None:
    async with open_store() as store:
        theirs = told(Document(id="d", content="sun", tenant="b", links=("e",)), secret=True)
        await store.upsert([theirs, told(Document(id="e", content="sun", tenant="b"))])
        before = await _rows(store, "b")
        await store.upsert([told(Document(id="d", content="moon", tenant="a", links=("x",)))])
        assert await _rows(store, "b") == before
        assert await store.delete(["d", "e"], "a") == 1
        await store.upsert([told(Document(id="d", content="moon"))])
        assert await store.delete(["d", "e"]) == 1
        assert await _rows(store, "b") == before
        assert sorted(await store.fingerprints("b")) == ["d", "e"]


async def _rows(store: Postgres, tenant: str) -> list[list[str]]:
    owners = {
        "documents": "tenant",
        "chunks": "owner",
        "links": "tenant",
        "facts": "owner",
        "counts": "tenant",
    }
    return [
        sorted(
            map(repr, await run(f'SELECT * FROM "{store.pool.schema}".{table} WHERE {column} = $1', tenant))
        )
        for table, column in owners.items()
    ]


# Row-level security alone.


@asynccontextmanager
async def _reader(store: Postgres) -> AsyncIterator[str]:
    """A connection string for a role that may read the store's tables, and is neither their owner nor a
    superuser.
    """
    role, place = schema(), store.pool.schema
    await store.migrate()
    await run(f'CREATE ROLE "{role}" LOGIN')
    await run(f'GRANT USAGE ON SCHEMA "{place}" TO "{role}"')
    await run(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{place}" TO "{role}"')
    try:
        yield store.pool.dsn.replace("//postgres:", f"//{role}:")
    finally:
        await run(f'DROP OWNED BY "{role}"')
        await run(f'DROP ROLE "{role}"')


ENTRIES = [
    told(
        Document(
            id="own", content="sun moon", tenant="a", links=("shared", "theirs", "legal", "secret", "nobody")
        )
    ),
    told(Document(id="shared", content="sun", tenant=SHARED)),
    told(
        Document(
            id="hr", content="sun moon", tenant="a", compartment="hr", sensitivity="internal", links=("own",)
        )
    ),
    told(Document(id="theirs", content="sun moon", tenant="b", links=("own",)), secret=True),
    told(
        Document(id="legal", content="sun moon", tenant="a", compartment="legal", links=("own",)), secret=True
    ),
    told(
        Document(id="secret", content="sun moon", tenant="a", sensitivity="restricted", links=("own",)),
        secret=True,
    ),
    told(Document(id="nobody", content="sun moon", links=("own",)), secret=True),
]


async def _seen(store: Postgres, facts: PostgresFacts) -> dict[str, Any]:
    """Everything that can be read of a store within the scope."""
    query = Query(
        text=f"sun {CANARY}",
        scope=SCOPE,
        vector=_vector("sun moon"),
        limit=50,
        entities=("sun", "tide", CANARY),
    )
    found: dict[str, Any] = {
        leg: sorted(h.document.id for h in await store.search(query.replace(leg=leg))) for leg in store.legs
    }
    every = [entry.document.id for entry in ENTRIES]
    found["fetch"] = sorted(document.id for document in await store.fetch(every, SCOPE))
    found["neighbours"] = sorted(hit.document.id for hit in await store.neighbours(["own"], 50, SCOPE))
    found["facets"] = sorted(
        (f.dimension, f.value, f.count) for f in await store.facets(query, ["labels", "topic"])
    )
    found["facts"] = sorted({(fact.subject, fact.object) for fact in await facts.facts(query)})
    found["entities"] = sorted({entity.name for entity in await facts.entities(query)})
    plain = query.replace(entities=())
    found["related"] = [
        (entity.name, entity.attributes["degree"]) for entity in await facts.related("sun", plain)
    ]
    found["way"] = [fact.object for fact in await facts.path("sun", CANARY, plain)]
    found["statements"] = [(facet.value, facet.count) for facet in await facts.facets(plain, ["entity"])]
    return found


EXPECTED = {
    "vector": ["hr", "own", "shared"],
    "text": ["hr", "own", "shared"],
    "keywords": ["hr", "own", "shared"],
    "fetch": ["hr", "own", "shared"],
    "neighbours": ["hr", "shared"],
    "facets": [("labels", "sky", 3), ("topic", "sky", 3)],
    "facts": [("sun", "tide"), ("tide", "moon")],
    "entities": ["sun", "tide"],
    "related": [("tide", 2)],
    "way": [],
    "statements": [("tide", 2), ("moon", 1), ("sun", 1)],
}


@pytest.mark.parametrize("exact_below", [0, 10_000])
async def test_with_the_query_s_own_filter_taken_out_row_level_security_holds(
    exact_below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store() as store, _reader(store) as address:
        await store.upsert(ENTRIES)
        keywords: dict[str, Any] = {"schema": store.pool.schema, "exact_below": exact_below, "pool_size": 2}
        reader = Postgres(dsn=address, **keywords)
        owner = Postgres(dsn=store.pool.dsn, **keywords)
        for each in (reader, owner):
            await each.open()
        graphs = {each: PostgresFacts(store=each) for each in (reader, owner)}
        for graph in graphs.values():
            await graph.open()
        assert await _seen(owner, graphs[owner]) == EXPECTED
        assert await _seen(reader, graphs[reader]) == EXPECTED
        async with reader.pool.transaction(
            SCOPE
        ) as connection:  # whose plans cannot use an index of a function
            assert not (await postgres_nomination.read_totals(connection, SCOPE)).frequent
        modules = (postgres_filter, postgres_text, postgres_nomination, postgres_lookup, postgres_facts)
        for module in modules:
            monkeypatch.setattr(module, "visible", lambda scope, table, values: "true")
        assert await _seen(reader, graphs[reader]) == EXPECTED
        assert (await reader.statistics(["sun"], SCOPE)).documents == len(EXPECTED["text"])
        bare = await _seen(owner, graphs[owner])
        for what, right in EXPECTED.items():
            assert len(bare[what]) > len(right), f"the filter of {what} was not taken out"
        for graph in graphs.values():
            await graph.aclose()
        for each in (reader, owner):
            await each.aclose()


async def test_a_role_that_is_not_the_owner_sees_nothing_without_a_scope() -> None:
    """It writes nothing."""
    async with open_store() as store, _reader(store) as address:
        await store.upsert(ENTRIES)
        place = store.pool.schema
        connection = await asyncpg.connect(address)
        for table in ("documents", "chunks", "links", "facts", "counts", "entities"):
            assert await connection.fetchval(f'SELECT count(*) FROM "{place}".{table}') == 0
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f'DELETE FROM "{place}".{table}')
        await connection.execute("SELECT set_config('contextrouter.scope', '{}', false)")
        assert await connection.fetchval(f'SELECT count(*) FROM "{place}".chunks') == 0
        await connection.close()
        forced = await run(
            "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relrowsecurity AND"
            " relforcerowsecurity",
            place,
        )
        walls = {"documents", "chunks", "links", "facts", "counts", "entities"}
        assert {row["relname"] for row in forced} == walls


async def test_what_a_connection_saw_for_one_scope_is_not_what_the_next_sees() -> None:
    """Scopes are set for a transaction: on one connection, one after the other and all at once, nothing stays
    behind.
    """
    async with open_store(pool_size=1) as store, _reader(store) as address:
        await store.upsert(ENTRIES)
        reader = Postgres(dsn=address, schema=store.pool.schema, pool_size=1)
        await reader.open()

        async def seen(scope: Scope | None) -> list[str]:
            hits = await reader.search(Query(text="sun", leg="text", scope=scope))
            return sorted(hit.document.id for hit in hits)

        right = {"a": ["own", "shared"], "b": ["shared", "theirs"], None: ["nobody", "shared"]}
        for tenant, expected in right.items():
            assert await seen(None) == sorted(entry.document.id for entry in ENTRIES)
            assert await seen(Scope(tenant=tenant)) == expected
        found = await asyncio.gather(*(seen(Scope(tenant=tenant)) for tenant in [*right] * 10))
        assert found == [*right.values()] * 10
        await reader.aclose()


async def test_errors_say_nothing_of_rows() -> None:
    """What Postgres says beside the first line of an error may quote a row, and is kept back."""
    async with open_store() as store:
        await store.upsert(ENTRIES)
        await run(f"ALTER TABLE \"{store.pool.schema}\".facts ADD CONSTRAINT few CHECK (predicate <> 'x')")
        document = Document(id="n", content=CANARY)
        broken = Entry(
            document=document, chunks=[document], facts=[Fact(subject=CANARY, predicate="x", object=CANARY)]
        )
        with pytest.raises(SourceError) as caught:
            await store.upsert([broken])
        assert "violates check constraint" in str(caught.value)
        assert CANARY not in str(caught.value)
        assert await store.fetch(["n"]) == []
