"""Settings values: a typed, frozen struct for every table, with its defaults.

Defaults < file < environment (`CONTEXTROUTER_<SECTION>__<KEY>`) < call arguments. `reading` merges the
values, and `sections` validates them. Settings.origins has the origin of each value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from contextrouter.contracts import KINDS, FilePath
from contextrouter.errors import Problem
from contextrouter.scope import Sensitivity
from contextrouter.settings.ingestion import Ingestion, Job
from contextrouter.settings.problems import origin_of, problem_at
from contextrouter.settings.telemetry import Telemetry

Weight = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Need = Literal["labels", "filters", "period", "attribute", "facets", "entities", "entities:2", "entities:3"]
_NONE: Mapping[str, Any] = {}

GIVEN = "(made by hand)"
"""The `use` of an instance that a program passes to the router."""
NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
TABLES: dict[str, str] = {f"{kind}s": kind for kind in KINDS}
"""Name of a table of plugin instances -> the kind of the plugins in it."""


class Rag(msgspec.Struct, frozen=True, kw_only=True):
    """`[rag]`: the sources and queries, the fusion, and the size of the context."""

    # names of the providers that run; None: all that are defined
    provider: str | tuple[str, ...] | None = None
    interpreters: tuple[str, ...] = ("followup", "normalize")
    stages: tuple[str, ...] = ()
    max_retrieval_queries: Annotated[int, Meta(ge=1, le=3)] = 3
    # What interpreters infer.
    interpret_seconds: Seconds | None = None  # for all interpreters; None: three tenths of the deadline
    least_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.2  # an intent below it is not searched for
    # of documents in an inferred period; 0: no others
    period_boost: Annotated[float, Meta(ge=0, le=10)] = 0.6
    exact_legs: tuple[str, ...] = ("text",)  # inferred labels and filters do not reach them
    # Enhancements: better answers for more time. Without them, stages that withhold documents still run.
    use_enhancements: bool = True  # all of the following, and every stage but gate, quality and floor
    enable_multi_query: bool = True
    enable_reranker: bool = True  # stages `centrality`, and no other reranker
    enable_multidoc: bool = True  # stages `neighbours`
    enable_cross_encoder: bool = True
    enable_fewshot: bool = True  # [chat] examples
    candidates: Positive = 30  # hits of each leg, unless the source has a `limit`
    enable_fts: bool = True
    # Time and concurrency.
    timeout_seconds: Seconds = 10.0
    max_concurrency: Positive = 64
    # Fusion.
    hybrid_fusion: Literal["scores", "rrf", "weighted"] = "scores"
    rrf_k: Annotated[float, Meta(ge=0)] = 60  # Cormack, Clarke and Büttcher 2009
    hybrid_vector_weight: Weight = 0.7
    hybrid_text_weight: Weight = 0.3
    leg_weights: Mapping[str, Weight] = _NONE  # "leg" or "source.leg"
    levels: Literal[1, 2] = 2
    derived_query_weight: Weight = 1.0  # of a query that a model or a caller gave, beside the question itself
    calibrate: bool = True
    keep_order: Annotated[float, Meta(ge=0, le=1)] = 1.0  # how far sources keep their own order, merged
    calibrate_embed: Count = 0  # how many candidates without a vector are embedded, the best first
    identity: Literal["exact", "content", "url", "id", "title"] = "exact"
    # Selection.
    general_retrieval_enabled: bool = True
    general_retrieval_final_count: Positive = 10
    max_books: Count = 5
    max_videos: Count = 3
    max_qa: Count = 5
    max_web: Count = 3
    quotas: Mapping[str, Count] = _NONE
    max_per_source: Positive | Mapping[str, Positive] = _NONE  # of every source, or by name; {}: any number
    # Facts.
    graph_facts_enabled: bool = True
    max_graph_facts: Count = 50
    max_facets: Positive = 20  # values of each dimension that is counted
    # Assembly.
    merge_neighbours: bool = True  # adjacent chunks of one document become one block
    token_budget: Count = 8000  # 0: none
    timezone: str = "UTC"
    # Cache.
    cache_enabled: bool = True
    cache_ttl_seconds: Seconds = 3600.0

    @property
    def queries(self) -> int:
        """How many queries a question has, with itself."""
        return self.max_retrieval_queries if self.use_enhancements and self.enable_multi_query else 1

    @property
    def providers(self) -> tuple[str, ...] | None:
        """Names of the providers that run; None: all that are defined."""
        return (self.provider,) if isinstance(self.provider, str) else self.provider

    def runs(self, switch: str) -> bool:
        """Whether stages with this switch run. Stages without a switch always run."""
        return not switch or (self.use_enhancements and bool(getattr(self, switch)))

    def quota(self, kind: str) -> tuple[str, int]:
        """Return the name and the size of the quota for documents of `kind`."""
        named = {
            "book": self.max_books,
            "video": self.max_videos,
            "qa": self.max_qa,
            "web": self.max_web,
            **self.quotas,
        }
        return (kind, named[kind]) if kind in named and kind != "other" else ("other", named.get("other", 3))


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """`[cache]`: where results and embeddings are kept. Memory is the first tier; `tier` adds a second."""

    tier: Literal["memory", "disk", "redis"] = "memory"
    max_bytes: Positive = 64_000_000  # of memory, for results and embeddings together
    version_seconds: Annotated[float, Meta(ge=0)] = 1.0  # how long a source's version is valid
    # entries are shared within one namespace only
    namespace: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")] = "default"
    secret: str = ""  # signs entries outside memory; entries with another signature are not read
    # Embeddings of questions.
    embeddings: bool = True
    embedding_ttl_seconds: Seconds = 86_400.0
    # tier = "disk"
    path: FilePath = ""
    disk_max_bytes: Positive = 1_000_000_000
    # tier = "redis"
    url: str = ""
    timeout_seconds: Seconds = 0.1  # of one operation; a slower one counts as a miss


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """`[limits]`: how many calls may wait, and the circuit breaker. `[rag]` limits the running calls."""

    max_waiting: Count = 1000  # waiting calls of each source; more are refused at once
    breaker_failures: Count = 10  # failures of one leg in a row, before its calls pause. 0: they never pause
    breaker_seconds: Seconds = 30.0  # length of the pause; then one call at a time tries
    max_abandoned: Positive = 32  # cancelled calls of a plugin that go on; with so many it is not called


class Plugins(msgspec.Struct, frozen=True, kw_only=True):
    """`[plugins]`: folders whose modules are plugins, relative to the settings file."""

    paths: tuple[str, ...] = ()


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """`[selection]`: which sources a question is sent to."""

    sources: Literal["all", "promising"] = "all"
    # the selected sources hold at least this share of the expected hits of all
    recall: Annotated[float, Meta(gt=0, le=1)] = 0.9
    fewest: Positive = 3  # at least so many sources are asked


class Serve(msgspec.Struct, frozen=True, kw_only=True):
    """`[serve]`: the address of the server, and its limits."""

    host: str = "127.0.0.1"  # another address than this machine needs access keys
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080  # 0: any free port
    workers: Annotated[int, Meta(ge=1, le=256)] = 1  # processes that share the port, and the limits below
    max_body_bytes: Positive = 1_000_000
    header_seconds: Seconds = 10.0  # time for the head of a request to arrive
    body_seconds: Seconds = 10.0  # time for a request body to arrive
    write_seconds: Seconds = 30.0  # time for a client to read an answer, or one event of a stream
    heartbeat_seconds: Annotated[float, Meta(ge=0)] = 15.0  # a silent stream gets a comment. 0: none
    max_connections: Positive = 512  # connections at once; idle ones give way
    max_requests: Positive = 256  # requests at once, with the waiting ones; more are refused with 503
    max_running: Positive = 32  # questions answered at once; others wait, and their deadline has not started
    rate_per_minute: Count = 0  # requests of one caller; more are refused with 429. 0: no limit
    max_deadline_seconds: Seconds = 60.0  # the longest deadline that a request may set
    drain_seconds: Seconds = 10.0  # time for running requests when the server stops
    # seconds before that in which /readyz says 503 and requests are still taken
    drain_delay: Annotated[float, Meta(ge=0)] = 0.0
    cors_origins: tuple[str, ...] = ()
    # names beside those of this machine by which it is asked without keys, such as host.docker.internal
    allowed_hosts: tuple[str, ...] = ()
    # addresses or networks of proxies whose requests are answered without keys, such as 127.0.0.1
    trusted_proxies: tuple[str, ...] = ()
    explorer: bool = True
    examples: tuple[str, ...] = ()  # questions that the explorer offers
    files: bool = False  # serve the local files that citations name, to callers who may see the documents
    mcp: bool = True  # serve the tools for agents at /mcp, where the package is installed
    log_format: Literal["json", "text"] = "json"


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """`[chat]`: how an answer is written from the context."""

    synthesis_model: str = "extractive"  # name of the generator
    synthesis_max_tokens: Positive = 1024  # of an answer; a request may set fewer
    compartment_generators: Mapping[str, str] = _NONE  # compartment -> generator, for callers who may see it
    models: tuple[str, ...] = ()  # generators that a request may name as its model
    max_query_chars: Positive = 500  # of the last user message, for retrieval; the generator gets all
    system_prompt: str = (
        "You answer questions from the numbered context below. What it does not say, you do not know."
    )
    citation_prompt: str = (
        "Cite every statement with the number of the context block it comes from, in brackets: [1], or"
        " [1][2]. Use no other numbers in brackets. Answer in the language of the question."
    )
    no_context_prompt: str = (  # with "generate" below: the system prompt where there is no context
        "No document answers this question. You may answer from your own knowledge. Say first that the answer"
        " does not come from the documents, and cite nothing. Answer in the language of the question."
    )
    # if no document matches: the text below, or the generator without context
    no_context: Literal["say", "generate"] = "say"
    no_context_text: str = "Nothing was found that answers this question."
    examples: FilePath = ""  # a JSON list or lines of {"question", "answer"}; "" or no such file: none
    examples_embedder: str = ""  # the embedder that finds examples by meaning; "": by their words
    max_examples: Count = 2
    # how an order of a chat program begins that is no question: it is not searched with
    task_prompts: tuple[str, ...] = (
        "### Task:",
        "Provide a concise, 5-word-or-less title",
        "Analyze this conversation and provide:",
        "Given the following... please reply with a title",
        "Given the following chat history, please reply with a title",
    )
    # for an answer without citations, or in another language: note it, or ask once more
    guard: Literal["note", "retry"] = "note"
    # writes where another generator fails; "": the answer fails
    fallback: Literal["extractive", ""] = "extractive"
    silence_seconds: Seconds = 120.0  # a generator that writes nothing for so long has failed
    # links and images that stay; the others are made harmless
    answer_links: Literal["cited", "all"] = "cited"


class Mcp(msgspec.Struct, frozen=True, kw_only=True):
    """`[mcp]`: limits of the tools for agents."""

    reply_tokens: Annotated[int, Meta(ge=400)] = 6000  # limit of one reply; a cursor leads to the next part


class Jwt(msgspec.Struct, frozen=True, kw_only=True):
    """`[jwt]`: callers who bring a signed token of an identity provider, in place of an access key."""

    keys_file: FilePath = ""  # its public keys: a PEM file, or a JWKS in JSON
    jwks_url: str = ""  # or the address of its JWKS; with neither no token is taken
    issuer: str = ""  # the `iss` of its tokens
    audience: str = ""  # their `aud`: the name under which the provider knows this server
    algorithms: Annotated[
        tuple[
            Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"],
            ...,
        ],
        Meta(min_length=1),
    ] = ("RS256", "ES256", "EdDSA")
    tenant_claim: str = "tenant"
    compartments_claim: str = "compartments"  # a list, or a text with spaces
    ceiling_claim: str = "ceiling"  # without it: public
    leeway_seconds: Annotated[float, Meta(ge=0, le=600)] = 30.0  # by which clocks may differ
    refresh_seconds: Annotated[float, Meta(ge=10)] = 600.0  # after which the JWKS is read again

    @property
    def enabled(self) -> bool:
        """Whether tokens are taken."""
        return bool(self.keys_file or self.jwks_url)


class AccessKey(msgspec.Struct, frozen=True, kw_only=True):
    """`[keys.<name>]`: an access key, its scope and its limits. `contextrouter keys new` writes one."""

    hash: str  # its form is checked in `sections`: the message of a pattern would show a key in its place
    enabled: bool = True
    unrestricted: bool = False  # may see every document of every tenant
    tenant: str | None = None
    compartments: tuple[str, ...] = ()
    # required, unless unrestricted
    ceiling: Sensitivity | None = None
    sources: tuple[str, ...] | None = None  # the sources this caller may use; None: all
    generator: str | None = None  # the generator for this caller; it overrides every other setting
    rate_per_minute: Count | None = None  # overrides [serve] rate_per_minute
    max_requests: Positive | None = None  # requests of this caller at once


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin instance: `[<kind>s.<name>]`. `options` go to the constructor, `keys` are the router's."""

    kind: str
    name: str
    use: str
    keys: Any
    options: Mapping[str, Any] = _NONE
    references: Mapping[str, str] = _NONE  # option -> kind of the instance it names


Inferred = Literal["labels", "filters", "period", "entities"]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`[routes.<intent kind>]`: settings that differ for questions of this kind."""

    description: str = ""  # what questions of this kind are about: interpreters read it
    needs: tuple[Need, ...] = ()  # without them the question goes to `fallback` at once
    ignore: tuple[Inferred, ...] = ()  # what was inferred and is given up here
    sources: tuple[str, ...] | None = None
    legs: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    filters: Mapping[str, Any] = _NONE
    period_days: Positive | None = None  # the period where the question has none: so many days up to now
    fallback: str | None = None  # the route to try if this one finds nothing
    rag: Mapping[str, Any] = _NONE  # keys of `[rag]` that the table has, with their values

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that the table names instead of `[rag] stages`."""
        return tuple(self.rag.get("stages", ()))

    @property
    def max_per_source(self) -> int | Mapping[str, int] | None:
        """The limit that the table sets instead of the one in `[rag]`; None: it sets none."""
        return self.rag.get("max_per_source")


_NO_ROUTE = Route()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. `origins` maps a dotted key to where its value was set. `secrets` are never shown."""

    rag: Rag = Rag()
    cache: Cache = Cache()
    limits: Limits = Limits()
    plugins: Plugins = Plugins()
    selection: Selection = Selection()
    serve: Serve = Serve()
    chat: Chat = Chat()
    mcp: Mcp = Mcp()
    jwt: Jwt = Jwt()
    telemetry: Telemetry = Telemetry()
    providers: Mapping[str, Instance] = _NONE
    connectors: Mapping[str, Instance] = _NONE
    facts: Mapping[str, Instance] = _NONE
    interpreters: Mapping[str, Instance] = _NONE
    stages: Mapping[str, Instance] = _NONE
    embedders: Mapping[str, Instance] = _NONE
    transforms: Mapping[str, Instance] = _NONE
    generators: Mapping[str, Instance] = _NONE
    routes: Mapping[str, Route] = _NONE
    ingest: Mapping[str, Job] = _NONE
    ingestion: Ingestion = Ingestion()
    keys: Mapping[str, AccessKey] = _NONE
    path: str = ""
    # what was read, before variables were replaced and secrets resolved: workers of ingestion read it again
    tables: Mapping[str, Any] = _NONE
    origins: Mapping[str, str] = _NONE
    warnings: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    fingerprint: str = ""

    @property
    def sources(self) -> dict[str, Instance]:
        """The enabled providers, connectors and fact sources, in the order of the file."""
        every = {**self.providers, **self.connectors, **self.facts}
        return {name: instance for name, instance in every.items() if instance.keys.enabled}

    def problem(self, key: str, message: str) -> Problem:
        """Return a problem of the value at a dotted key, with the file and line of the value."""
        origin = origin_of(self.origins, key)
        return problem_at("" if origin == "call" else origin, key, message)

    def instances(self, kind: str) -> Mapping[str, Instance]:
        """Return the instances of one kind, by name."""
        return cast("Mapping[str, Instance]", getattr(self, f"{kind}s"))

    def stores_of(self, connector: str) -> dict[str, str]:
        """Return job -> store, of the jobs that read this connector."""
        return {name: job.to for name, job in self.ingest.items() if job.source == connector}

    def for_route(self, kind: str) -> tuple[Rag, Route]:
        """Return `[rag]` with the changes of this route, and the route itself."""
        route = self.routes.get(kind)
        if route is None:
            return self.rag, _NO_ROUTE
        return (msgspec.structs.replace(self.rag, **route.rag) if route.rag else self.rag), route
