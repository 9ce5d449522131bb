"""The reranker `api`: reranking over HTTP by Cohere, Jina, Voyage or another server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from contextrouter.builtin.stages.reranking_example import HOST, RerankServer
from contextrouter.contracts import FilePath, Reranker
from contextrouter.errors import PluginError
from contextrouter.fetch import JSON, Fetcher, FetchOptions, check_url
from contextrouter.model import Document


class _Style(NamedTuple):
    """What a service calls its fields. `results` "" : the answer is the list itself."""

    documents: str
    results: str
    number: str
    score: str


STYLES: Mapping[str, _Style] = {
    "cohere": _Style("documents", "results", "index", "relevance_score"),
    "jina": _Style("documents", "results", "index", "relevance_score"),
    "voyage": _Style("documents", "data", "index", "relevance_score"),
    "tei": _Style("texts", "", "index", "score"),
}


class Api(Reranker):
    """Sends question and texts to `url` with POST, and takes one score for each text from the answer.

    `style` names the fields as that service has them (tei: Hugging Face's text-embeddings-inference);
    `documents_field`, `results_field`, `index_field` and `score_field` name them otherwise. `model` is sent
    when given, `extra` always. `api_key` goes as a bearer token to that address alone. `max_characters` are
    sent of a text. What may be fetched, and how long, is as for sources: private addresses are refused unless
    `allow_private` names their network.
    """

    def __init__(
        self,
        *,
        url: str,
        style: Literal["cohere", "jina", "voyage", "tei"] = "cohere",
        model: str = "",
        api_key: str = "",
        documents_field: str = "",
        results_field: str | None = None,
        index_field: str = "",
        score_field: str = "",
        extra: Mapping[str, Any] = {},
        max_characters: int = 4_000,
        user_agent: str = "contextrouter",
        max_bytes: int = 5_000_000,
        fetch_seconds: float = 10.0,
        per_host: int = 4,
        allow_private: Sequence[str] = (),
        ca_file: FilePath = "",
        environment_proxies: bool = False,
    ) -> None:
        check_url(url)
        if style not in STYLES:
            raise ValueError(f"style {style!r} is not one of {', '.join(STYLES)}.")
        if max_characters < 1:
            raise ValueError(f"max_characters {max_characters!r} is below 1.")
        preset = STYLES[style]
        self._fields = _Style(
            documents_field or preset.documents,
            preset.results if results_field is None else results_field,
            index_field or preset.number,
            score_field or preset.score,
        )
        options = FetchOptions(
            user_agent=user_agent,
            max_bytes=max_bytes,
            fetch_seconds=fetch_seconds,
            per_host=per_host,
            retries=0,
            credentials={urlsplit(url).netloc: f"Bearer {api_key}"} if api_key else {},
            allow_private=allow_private,
            ca_file=ca_file,
            environment_proxies=environment_proxies,
        )
        options.check("Api")
        self._url, self._model, self._extra, self._max_characters = url, model, dict(extra), max_characters
        # What a service of no named model scores by is not known.
        self.model = f"{model} {url} {max_characters} {extra!r} {self._fields!r}" if model else ""
        self._fetcher = Fetcher(options, extra="http")
        self._server: RerankServer | None = None

    @classmethod
    def example(cls) -> Self:
        """Ask a server of its own on this machine, which runs from open() to aclose()."""
        stage = cls(url=f"http://{HOST}/rerank", model="example", allow_private=["127.0.0.1/32"])
        stage._server = RerankServer()
        return stage

    async def open(self) -> None:
        """Open the session; nothing is sent. Raises MissingDependency."""
        if self._server is not None:
            self._fetcher.names = await self._server.open()
        await self._fetcher.open()

    async def aclose(self) -> None:
        """Close the session."""
        await self._fetcher.aclose()
        if self._server is not None:
            await self._server.aclose()

    async def ping(self) -> None:
        """Have one text ranked."""
        await self.score("ping", [Document(content="ping")])

    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        """The service's score of each document. Raises PluginError for an answer that does not hold one for
        each.
        """
        texts = [
            f"{document.title}\n{document.content}" if document.title else document.content
            for document in documents
        ]
        request = {
            "query": _replace_surrogates(query),
            self._fields.documents: [_replace_surrogates(text[: self._max_characters]) for text in texts],
            **self._extra,
        }
        if self._model:
            request["model"] = self._model
        headers = {"Content-Type": "application/json"}
        answer = await self._fetcher.post(
            self._url, msgspec.json.encode(request), accept=JSON, headers=headers
        )
        return self._scores(answer.body, len(texts))

    def _scores(self, body: bytes, count: int) -> list[float]:
        try:
            results: Any = msgspec.json.decode(body)
            for name in filter(None, self._fields.results.split(".")):
                results = results[name]
            scores = {int(item[self._fields.number]): float(item[self._fields.score]) for item in results}
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise self._make_error(
                f"answered in another shape ({type(error).__name__}: {str(error)[:80]})"
            ) from None
        if sorted(scores) != list(range(count)):
            raise self._make_error(
                f"numbered its scores {sorted(scores)[:8]!r} for {count} texts, not one for each from 0"
            )
        return [scores[number] for number in range(count)]

    def _make_error(self, problem: str) -> PluginError:
        fields = ", ".join(f"{name} {value!r}" for name, value in self._fields._asdict().items())
        return PluginError(
            f"Stage 'api': {self._fetcher.masked(self._url)} {problem}. Check style and fields ({fields})."
        )


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
