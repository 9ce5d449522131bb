"""The reranker `vertex`: the Ranking API of Google Cloud, a cross-encoder behind a service."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

from contextrouter.builtin.shared.concurrent_calls import run_together
from contextrouter.builtin.shared.google_cloud.cloud_connection import CloudConnection
from contextrouter.builtin.shared.google_cloud.cloud_options import CloudOptions, check_above_zero
from contextrouter.builtin.shared.google_cloud.google_services import RANKING
from contextrouter.builtin.stages.rank_server import MOST_RECORDS, RankServer
from contextrouter.contracts import FilePath, Reranker
from contextrouter.model import Document

_LONGEST_TITLE = 500  # characters
_AT_ONCE = 4  # requests


class VertexReranker(Reranker):
    """Scores texts against the question with `model` of the Ranking API, 0 to 1.

    `max_characters` are sent of a text. A request holds 200 texts; more go in several requests at once.
    `request_timeout` is in seconds, for one request. The other keys are those of the provider `vertex`.
    """

    def __init__(
        self,
        *,
        model: str = "semantic-ranker-default@latest",
        project: str = "",
        max_characters: int = 4_000,
        request_timeout: float = 5.0,
        credentials_file: FilePath = "",
        endpoint: str = "",
    ) -> None:
        if not model.strip():
            raise ValueError(
                "model is empty. Give the name of a ranking model, such as 'semantic-ranker-fast@latest'."
            )
        check_above_zero("max_characters", max_characters)
        self.model, self._name, self._most = f"{model} {max_characters}", model, max_characters
        options = CloudOptions(project, "global", credentials_file, endpoint, request_timeout).check()
        self._connection = CloudConnection(RANKING, options, "Stage 'vertex'")
        self._client: Any = None

    @classmethod
    def example(cls) -> Self:
        """Ask a server of its own on this machine, which runs from open() to aclose()."""
        stage = cls()
        stage._connection.server = RankServer()
        return stage

    async def open(self) -> None:
        """Connect. Raises MissingDependency, and PluginError without a project or working credentials."""
        if self._connection.is_open:
            return
        await self._connection.open()
        self._client = self._connection.client("rank_service")
        project = self._connection.project
        self._connection.resource = (
            f"projects/{project}/locations/global/rankingConfigs/default_ranking_config"
        )

    async def aclose(self) -> None:
        """Close the connection."""
        self._client = None
        await self._connection.aclose()

    async def ping(self) -> None:
        """Score one text. Raises PluginError when the service does not answer as it should."""
        await self.score("ping", [Document(content="ping")])

    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        """Return one score from 0 to 1 for each document. The service rounds them, so some are equal.

        Raises PluginError when the service fails, or leaves a document out.
        """
        self._connection.check_home()
        starts = range(0, len(documents), MOST_RECORDS)
        parts = [documents[start : start + MOST_RECORDS] for start in starts]
        calls = [partial(self._rank, _sendable(query), part) for part in parts]
        return [score for scores in await run_together(calls, _AT_ONCE) for score in scores]

    async def _rank(self, question: str, documents: Sequence[Document]) -> list[float]:
        from google.cloud import discoveryengine_v1 as types

        records = [
            types.RankingRecord(
                id=str(number),
                title=_sendable(document.title[:_LONGEST_TITLE]),
                content=_sendable(document.content[: self._most]) or ".",  # a record must have some text
            )
            for number, document in enumerate(documents)
        ]
        request = types.RankRequest(
            ranking_config=self._connection.resource,
            model=self._name,
            query=question or ".",
            records=records,
            ignore_record_details_in_response=True,
        )
        answer = await self._connection.call(self._client.rank, request)
        # The answer is in the order of the scores: the ids say which document each belongs to.
        scores = {record.id: record.score for record in type(answer).pb(answer).records}
        absent = [record.id for record in records if record.id not in scores]
        if absent or len(scores) != len(records):
            raise self._connection.answer_error(
                f"scored {len(scores)} records where {len(records)} were sent", "Ask again."
            )
        return [scores[record.id] for record in records]


def _sendable(text: str) -> str:
    """Text that a message can carry: half of a surrogate pair becomes "?"."""
    return text.encode("utf-8", "replace").decode()
