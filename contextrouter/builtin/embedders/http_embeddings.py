"""The embedder `http`: embeddings of any JSON API, described by settings: Cohere, Voyage, TEI, Ollama, …"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self, Unpack

import msgspec

from contextrouter.builtin.connectors import url_template
from contextrouter.builtin.connectors.option_checks import check_headers
from contextrouter.builtin.embedders.http_embeddings_example import HOST, VectorServer
from contextrouter.builtin.embedders.onnx_model import digest_of
from contextrouter.builtin.embedders.sentence_embedder import SentenceOptions, token_batches
from contextrouter.builtin.shared.concurrent_calls import run_together
from contextrouter.contracts import Embedder
from contextrouter.errors import MissingDependency, PluginError, SettingsError, SourceError
from contextrouter.fetch import JSON, Fetched, Fetcher, FetchKeys, FetchOptions, check_url
from contextrouter.model import Vector
from contextrouter.runtime.masking import is_secret
from contextrouter.runtime.threads import Threads
from contextrouter.text.characters import is_blank
from contextrouter.text.prompt_injection import clean_line
from contextrouter.vectors import direction

NAMES = ("texts", "text", "model", "dimensions", "input_type")
"""What may stand in braces in `body`."""
BATCH_TOKENS = 8_000
"""Tokens of one request, by the shipped tokenizer, if the settings say nothing."""


class Http(Embedder):
    """Embeds texts by POST to `url`, as unit vectors of `dimensions` floats.

    `body` is a template: "{texts}" becomes the list of texts, "{text}" one text, which is then alone in its
    request; "{model}", "{dimensions}" and "{input_type}" become those of the settings. `input_type` is
    `query_input_type` for questions, else `document_input_type`. `vectors` is the JMESPath expression for the
    vectors in the answer, `numbers` that for their numbers, where the answer has any order. `headers` go to
    that address alone. A request holds at most `batch_size` texts and `batch_tokens` tokens, and at most
    `per_host` requests run at once.

    `model` is stored with the vectors. A digest stands behind it where prefixes, input types or values of
    `body` change them. A request that fails for now (status 429, 502 to 504, or no connection) is sent again
    up to `retries` times, as a GET is. A blank text is never sent and gets zeros. The keys of connectors that
    fetch are theirs, but for `max_redirects` and `cache_path`, which have no effect: private addresses are
    refused unless `allow_private` names their network.
    """

    score_weights: Mapping[str, float] = {"vector": 1.0, "keywords": 0.15}
    leg_weights: Mapping[str, float] = {"vector": 1.0, "keywords": 0.5}

    def __init__(
        self,
        *,
        url: str,
        model: str,
        dimensions: int,
        body: Mapping[str, Any],
        vectors: str,
        numbers: str = "",
        headers: Mapping[str, str] = {},
        query_input_type: str = "query",
        document_input_type: str = "document",
        batch_size: int = 96,
        batch_tokens: int = BATCH_TOKENS,
        query_prefix: str = "",
        document_prefix: str = "",
        score_weights: Mapping[str, float] = {},
        leg_weights: Mapping[str, float] = {},
        unrelated: float = 0.0,
        **fetch: Unpack[FetchKeys],
    ) -> None:
        _check_options(url, model, dimensions, batch_size)
        _check_fetch_keys(fetch)
        check_headers("Http", headers)
        self._single = _takes_one_text(body)
        self.options = SentenceOptions(
            query_prefix=query_prefix,
            document_prefix=document_prefix,
            dimensions=dimensions,
            batch_tokens=batch_tokens,
            score_weights=score_weights,
            leg_weights=leg_weights,
            unrelated=unrelated,
        )
        self.options.apply_to(self)
        self.dimensions, self._asked_model = dimensions, model
        self._url, self._body, self._headers, self._batch_size = url, body, headers, batch_size
        self._paths = {"vectors": vectors, **({"numbers": numbers} if numbers else {})}
        self._compiled: dict[str, Any] = {}
        self._input_types = {True: query_input_type, False: document_input_type}
        self.model = self._name()
        options = FetchOptions.build("Http", **fetch)
        secrets = [value for value in headers.values() if len(value) >= 8]
        self._fetcher = Fetcher(options, extra="http", secrets=secrets, configured=[url])
        self._threads: Threads | None = None
        self._server: VectorServer | None = None

    @classmethod
    def example(cls) -> Self:
        """Ask a server of its own on this machine, which runs from open() to aclose()."""
        embedder = cls(
            url=f"http://{HOST}/embed",
            model="example",
            dimensions=8,
            body={"inputs": "{texts}"},
            vectors="vectors",
            allow_private=["127.0.0.1/32"],
        )
        embedder._server = VectorServer(8)
        return embedder

    async def open(self) -> None:
        """Compile the expressions and open the session; nothing is sent. Raises MissingDependency, and
        SettingsError for what is no expression.
        """
        if self._threads is not None:
            return
        self._compile()
        if self._server is not None:
            port = await self._server.listen()
            self._fetcher.names = {HOST: ("127.0.0.1", port)}
        await self._fetcher.open()
        self._threads = Threads(2, "http-embedder")

    async def aclose(self) -> None:
        """Close the session."""
        await self._fetcher.aclose()
        if self._server is not None:
            await self._server.aclose()
        if self._threads is not None:
            self._threads.close()
        self._threads = None

    async def ping(self) -> None:
        """Embed one word. Raises PluginError when the server does not answer as it should."""
        await self.embed(["ping"], query=True)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """One vector per text: `dimensions` floats of length 1, or zeros for a blank text.

        Raises PluginError when the server fails, and when the number or the length of its vectors is not what
        was asked for.
        """
        threads = self._open_threads()
        vectors: list[Vector] = [[0.0] * self.dimensions for _ in texts]
        prefix = self.options.prefix(query, {})
        # Lone surrogates, which no JSON can carry, become "?".
        filled = {
            number: (prefix + text).encode("utf-8", "replace").decode()
            for number, text in enumerate(texts)
            if not is_blank(text)
        }
        limit = 0 if self._single else self.options.batch_tokens
        batches = await threads.run(token_batches, filled, limit, self._batch_size)
        calls: list[Callable[[], Any]] = [
            partial(self._request, [filled[number] for number in batch], query, threads) for batch in batches
        ]
        for batch, rows in zip(
            batches, await run_together(calls, self._fetcher.options.per_host), strict=True
        ):
            for number, row in zip(batch, rows, strict=True):
                vectors[number] = row
        return vectors

    async def _request(self, texts: list[str], query: bool, threads: Threads) -> list[list[float]]:
        values = {
            "texts": texts,
            "text": texts[0],
            "model": self._asked_model,
            "dimensions": self.dimensions,
            "input_type": self._input_types[query],
        }
        body = await threads.run(msgspec.json.encode, url_template.fill(self._body, values))
        fetched = await self._post(body)
        return await threads.run(self._read, fetched.body, len(texts))

    async def _post(self, body: bytes) -> Fetched:
        headers = {"Content-Type": "application/json", **self._headers}
        try:
            return await self._fetcher.post(self._url, body, accept=JSON, headers=headers, repeatable=True)
        except SourceError as failure:  # it is no source that failed
            remedy = "Check url, headers and body, and whether the server is up."
            raise PluginError(f"Embedder 'http': {failure} {remedy}") from None

    def _name(self) -> str:
        """The model, with a digest of what else in the settings changes the vectors, if anything does."""
        names = url_template.placeholders(self._body)
        types = self._input_types if "input_type" in names else {}
        prefixes = [self.options.prefix(query, {}) for query in (True, False)]
        values = _own_values(self._body)
        if not (any(prefixes) or types or values):
            return self._asked_model
        body = msgspec.json.encode(values, order="deterministic")
        return f"{self._asked_model}@{digest_of([], body, types, *prefixes)}"

    def _read(self, body: bytes, expected: int) -> list[list[float]]:
        """The vectors in an answer, checked and of length 1. Runs in a thread."""
        try:
            answer = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise self._make_error(f"answered with what is no JSON ({str(error)[:80]})") from None
        rows = self._find("vectors", answer)
        if self._single and isinstance(rows, list) and rows and not isinstance(rows[0], list):
            rows = [rows]
        if not isinstance(rows, list) or not all(_is_vector(row) for row in rows):
            keys = (
                f"its keys are {', '.join(answer)[:200]}" if isinstance(answer, dict) else "it is no object"
            )
            raise self._make_error(
                f"has no list of vectors where vectors = {self._paths['vectors']!r} says; {keys}"
            )
        if len(rows) != expected:
            raise self._make_error(f"returned {len(rows)} vectors for {expected} texts")
        rows = self._in_order(rows, answer)
        for row in rows:
            if len(row) != self.dimensions:
                raise self._make_error(
                    f"returned a vector of {len(row)} numbers where dimensions = {self.dimensions}. Set"
                    f" dimensions = {len(row)}, or ask for that length in body"
                )
        directions = [direction(row) for row in rows]
        if not all(directions):
            raise self._make_error(
                "returned a vector that has no direction (zeros, or numbers that are not finite)"
            )
        return directions

    def _in_order(self, rows: list[list[float]], answer: Any) -> list[list[float]]:
        """The vectors in the order of their numbers, where the settings say where these are."""
        if "numbers" not in self._paths:
            return rows
        numbers = self._find("numbers", answer)
        usable = isinstance(numbers, list) and all(type(number) is int for number in numbers)
        if not usable or sorted(numbers) != list(range(len(rows))):
            raise self._make_error(
                f"numbered its {len(rows)} vectors {str(numbers)[:60]} where numbers ="
                f" {self._paths['numbers']!r} says, not from 0"
            )
        return [row for _, row in sorted(zip(numbers, rows, strict=True), key=lambda pair: pair[0])]

    def _find(self, name: str, answer: Any) -> Any:
        try:
            return self._compiled[name].search(answer)
        except (RecursionError, ArithmeticError, TypeError, ValueError, AttributeError):
            return None  # JMESPath's own errors are ValueErrors

    def _compile(self) -> None:
        try:
            import jmespath
        except ImportError:
            raise MissingDependency("jmespath", "http", what="Embedder 'http'") from None
        for name, text in self._paths.items():
            try:
                self._compiled[name] = jmespath.compile(text)
            except jmespath.exceptions.JMESPathError as error:
                reason = str(error).splitlines()[0]
                raise SettingsError(
                    f"Http.{name} {text!r} is no JMESPath expression ({reason}); see jmespath.org."
                ) from None

    def _open_threads(self) -> Threads:
        if self._threads is None:
            raise PluginError("Embedder 'http' is not open. Call open() first.")
        return self._threads

    def _make_error(self, problem: str) -> PluginError:
        # What a server wrote may repeat the key that it was sent, or hold characters for a terminal.
        return PluginError(f"Embedder 'http': {self._fetcher.masked(clean_line(f'{self._url} {problem}'))}.")


def _is_vector(row: object) -> bool:
    return isinstance(row, list) and all(type(value) in (int, float) for value in row)


def _takes_one_text(body: Mapping[str, Any]) -> bool:
    """Whether a template takes one text. Raises ValueError for one that takes both, or nothing."""
    url_template.check(body, NAMES, "Http.body")
    names = url_template.placeholders(body) & {"texts", "text"}
    if len(names) != 1:
        raise ValueError(
            'Http.body has to hold either "{texts}", the list of texts, or "{text}", one text; it holds'
            f" {'both' if names else 'neither'}."
        )
    return "text" in names


def _own_values(template: Any) -> Any:
    """What a template says itself: without texts that are one placeholder, and without secrets, which change
    and change no vector.
    """
    if isinstance(template, Mapping):
        parts = {
            key: _own_values(value)
            for key, value in template.items()
            if not (isinstance(value, str) and is_secret(key))
        }
        return {key: value for key, value in parts.items() if value not in ("", {}, [])}
    if isinstance(template, list | tuple):
        return [part for value in template if (part := _own_values(value)) not in ("", {}, [])]
    return "" if isinstance(template, str) and url_template.is_placeholder(template) else template


def _check_options(url: str, model: str, dimensions: int, batch_size: int) -> None:
    check_url(url)
    if not model.strip():
        raise ValueError("model is empty. Name the model: it is stored with the vectors it made.")
    for name, value in (("dimensions", dimensions), ("batch_size", batch_size)):
        if not 1 <= value <= 100_000:
            raise ValueError(f"{name} {value!r} is out of range; give 1 to 100,000.")


def _check_fetch_keys(fetch: FetchKeys) -> None:
    for name in ("max_redirects", "cache_path"):
        if name in fetch:
            raise ValueError(f"Http.{name} has no effect: texts are sent by POST. Remove it.")
