"""A local stand-in for the Ranking API, for examples and tests: the share of the question's words in a text.

It refuses more than 200 records in a request, and a record without title and content. Answers are in the
order of their scores, which have two digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextrouter.builtin.shared.google_cloud.grpc_server import GrpcServer, Rpc

MOST_RECORDS = 200


class RankServer(GrpcServer):
    """Answers Rank. `sizes` are the numbers of records of the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.left_out = 0  # records that an answer lacks

    def services(self) -> Mapping[str, Mapping[str, Rpc]]:
        """The method that the stage calls."""
        from google.cloud import discoveryengine_v1 as types

        self.types: Any = types
        rank = Rpc(self._rank, types.RankRequest, types.RankResponse)
        return {"google.cloud.discoveryengine.v1.RankService": {"Rank": rank}}

    async def _rank(self, request: Any, context: Any) -> Any:
        import grpc

        self.sizes.append(len(request.records))
        if len(request.records) > MOST_RECORDS:
            message = f"{len(request.records)} records; at most {MOST_RECORDS}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        if not all(record.title or record.content for record in request.records):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a record has neither title nor content")
        target = set(request.query.casefold().split())
        scored = []
        for record in request.records:
            words = f"{record.title} {record.content}".casefold().replace(".", " ").split()
            share = len(target & set(words)) / len(target)
            scored.append(self.types.RankingRecord(id=record.id, score=max(round(share, 2), 0.0001)))
        scored.sort(key=lambda record: -record.score)
        return self.types.RankResponse(records=scored[self.left_out :])
