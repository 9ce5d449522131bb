"""The neighbours of a vector in a deployed index, with their cosines."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from contextrouter.builtin.providers.vertex_index.deployed_index import PRODUCT, to_cosine
from contextrouter.builtin.shared.google_cloud.cloud_connection import CloudConnection


class Neighbours:
    """Asks a deployed index, by an open connection. `measure` is that of the index."""

    def __init__(self, connection: CloudConnection, deployed: str, measure: str) -> None:
        self.connection = connection
        self._deployed, self._measure = deployed, measure
        self._client = connection.client("match_service")
        self._asking = asyncio.Lock()
        self._sign = 0.0 if measure == PRODUCT else 1.0  # as the service gives them; 0: not known yet

    async def ping(self) -> None:
        """Raise SourceError when the deployed index does not answer."""
        await self._read("ping", None, instead={"NotFound": None})

    async def nearest(self, point: Any, count: int, deadline: float | None) -> list[tuple[str, float]]:
        """Return ids and cosines of the neighbours of a datapoint, nearest first."""
        pairs = await self._ask(point, count, deadline)
        if not pairs:
            return []
        sign = await self._find_sign(pairs[0][0], deadline)
        cosines = [(id, to_cosine(self._measure, sign * distance)) for id, distance in pairs]
        clipped = [(id, max(-1.0, min(1.0, cosine))) for id, cosine in cosines if math.isfinite(cosine)]
        return sorted(clipped, key=lambda pair: (-pair[1], pair[0]))

    async def _ask(self, point: Any, count: int, deadline: float | None) -> list[tuple[str, float]]:
        from google.cloud.aiplatform_v1 import FindNeighborsRequest

        request = FindNeighborsRequest(
            index_endpoint=self.connection.resource,
            deployed_index_id=self._deployed,
            queries=[FindNeighborsRequest.Query(datapoint=point, neighbor_count=count)],
        )
        answer = await self.connection.call(self._client.find_neighbors, request, deadline=deadline)
        lists = type(answer).pb(answer).nearest_neighbors
        neighbours = lists[0].neighbors if lists else ()
        return [(item.datapoint.datapoint_id, item.distance) for item in neighbours]

    async def _find_sign(self, id: str, deadline: float | None) -> float:
        """Return 1, or -1 where products come negated. No setting says which, so a stored vector is compared
        with itself, once.
        """
        from google.cloud.aiplatform_v1 import types

        async with self._asking:  # one asks for all
            if not self._sign:
                stored = await self._read(id, deadline)
                if not stored:
                    raise self.connection.answer_error(f"has no datapoint {id!r} any more", "Ask again.")
                point = types.IndexDatapoint(feature_vector=list(stored[0].feature_vector))
                itself = await self._ask(point, 1, deadline)
                self._sign = -1.0 if itself and itself[0][1] < 0 else 1.0
        return self._sign

    async def _read(self, id: str, deadline: float | None, instead: Mapping[str, Any] = {}) -> Any:
        from google.cloud.aiplatform_v1 import ReadIndexDatapointsRequest

        request = ReadIndexDatapointsRequest(
            index_endpoint=self.connection.resource, deployed_index_id=self._deployed, ids=[id]
        )
        answer = await self.connection.call(
            self._client.read_index_datapoints, request, deadline=deadline, instead=instead
        )
        return () if answer is None else answer.datapoints
