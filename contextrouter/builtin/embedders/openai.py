"""The embedder `openai`: embeddings over HTTP from any server with OpenAI's `POST /v1/embeddings`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from contextrouter.builtin.embedders.openai_example import EmbeddingServer
from contextrouter.builtin.shared.server_client import OpenAIClient
from contextrouter.contracts import Embedder
from contextrouter.errors import PluginError
from contextrouter.model import Vector
from contextrouter.runtime.masking import mask
from contextrouter.vectors import direction

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAI(OpenAIClient, Embedder):
    """Embeds texts with `model` at `base_url` (empty: OpenAI's own), as unit vectors of `dimensions` floats.

    `batch_size` texts go into one request, each after `query_prefix` or `document_prefix`. `send_dimensions`
    asks the server for vectors of that length (models that can shorten theirs); otherwise `dimensions` only
    says what to expect. A blank text is never sent and gets a vector of zeros, which is similar to nothing.
    `request_timeout` is in seconds, for one request.
    """

    leg_weights: Mapping[str, float] = {"vector": 1.0, "keywords": 0.5}
    label = "Embedder 'openai'"

    def __init__(
        self,
        *,
        model: str,
        dimensions: int,
        base_url: str = "",
        api_key: str = "",
        batch_size: int = 256,
        query_prefix: str = "",
        document_prefix: str = "",
        request_timeout: float = 10.0,
        send_dimensions: bool = False,
    ) -> None:
        if not model.strip():
            raise ValueError(
                "model is empty. Give the name of an embedding model, such as 'text-embedding-3-small'."
            )
        for key, value in (
            ("dimensions", dimensions),
            ("batch_size", batch_size),
            ("request_timeout", request_timeout),
        ):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{key} {value!r} is not a positive number. Give more than 0.")
        if base_url and not base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url {base_url!r} is no HTTP address. Give one such as 'https://host/v1'.")
        self.model, self.dimensions, self.base_url = model, dimensions, base_url
        self.batch_size, self.request_timeout, self.send_dimensions = (
            batch_size,
            request_timeout,
            send_dimensions,
        )
        self.query_prefix, self.document_prefix = query_prefix, document_prefix
        self._api_key = api_key

    @classmethod
    def example(cls) -> Self:
        """An instance with a server of its own on this machine, which runs from open() to aclose()."""
        embedder = cls(model="example", dimensions=8, base_url="http://127.0.0.1:9/v1")
        embedder._server = EmbeddingServer(embedder.dimensions)
        return embedder

    async def ping(self) -> None:
        """Embed one word. Raises PluginError when the server does not answer as it should."""
        await self.embed(["ping"], query=True)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """One vector per text: `dimensions` floats of length 1, or zeros for a blank text.

        Raises PluginError when the server fails, and when the number or the length of its vectors is not what
        was asked for.
        """
        client = self._get_client()
        prefix = self.query_prefix if query else self.document_prefix
        vectors: list[Vector] = [[0.0] * self.dimensions for _ in texts]
        nonblank = [i for i, text in enumerate(texts) if text.strip()]
        for start in range(0, len(nonblank), self.batch_size):
            positions = nonblank[start : start + self.batch_size]
            # Lone surrogates, which no JSON can carry, become "?".
            batch = [(prefix + texts[i]).encode("utf-8", "replace").decode() for i in positions]
            batch_vectors = await self._request(client, batch)
            for position, vector in zip(positions, batch_vectors, strict=True):
                vectors[position] = vector
        return vectors

    async def _request(self, client: AsyncOpenAI, texts: list[str]) -> list[list[float]]:
        from openai import OpenAIError

        options: dict[str, Any] = {"dimensions": self.dimensions} if self.send_dimensions else {}
        try:
            async with asyncio.timeout(
                2 * self.request_timeout + 5
            ):  # two attempts and the pause between them
                answer = await client.embeddings.create(
                    input=texts, model=self.model, encoding_format="float", **options
                )
            numbered = [(int(item.index), [float(x) for x in item.embedding]) for item in answer.data]
        except TimeoutError:
            raise self._make_error(f"did not answer within {self.request_timeout:g} s") from None
        except (
            OpenAIError,
            ValueError,
            TypeError,
            AttributeError,
        ) as error:  # the last three: an answer of another shape
            # The chain is cut: the client's own exceptions carry the request and with it the key.
            raise self._make_error(f"{type(error).__name__}: {error}") from None
        return self._check_vectors(numbered, len(texts))

    def _check_vectors(self, numbered: list[tuple[int, list[float]]], expected: int) -> list[list[float]]:
        """The vectors in the order of their index, after a look at how many and how long they are."""
        numbered.sort(key=lambda item: item[0])
        if len(numbered) != expected:
            raise self._make_error(f"returned {len(numbered)} vectors for {expected} texts")
        if [index for index, _ in numbered] != list(range(expected)):
            raise self._make_error(
                f"numbered its {expected} vectors {[index for index, _ in numbered][:8]!r}, not from 0"
            )
        for _, vector in numbered:
            if len(vector) != self.dimensions:
                remedy = (
                    f"Set dimensions = {len(vector)}, and index again what was indexed with another length."
                )
                raise self._make_error(
                    f"returned vectors of {len(vector)} numbers where dimensions = {self.dimensions}", remedy
                )
        directions = [direction(vector) for _, vector in numbered]
        if not all(directions):
            raise self._make_error(
                "returned a vector that has no direction (zeros, or numbers that are not finite)"
            )
        return directions

    def _make_error(self, problem: str, remedy: str = "Check base_url, model and api_key.") -> PluginError:
        server = self.base_url or "OpenAI"
        return PluginError(
            mask(f"Model {self.model!r} at {server} {problem.rstrip('.')}. {remedy}", [self._api_key])
        )
