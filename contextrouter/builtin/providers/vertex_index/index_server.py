"""A local stand-in for Vector Search 1, for examples and tests: datapoints in memory, searched exactly.

It refuses more than 1,000 datapoints in a request, vectors of another length than the first, comparisons in a
datapoint that is written, writes to an index without streaming updates, and questions to an index that is not
deployed.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from contextrouter.builtin.shared.google_cloud.grpc_server import GrpcServer, Rpc

_MOST = 1_000
_COMPARED = {1: operator.lt, 2: operator.le, 3: operator.eq, 4: operator.ge, 5: operator.gt, 6: operator.ne}
_API = "google.cloud.aiplatform.v1"


def example_vector(text: str, dimensions: int = 16) -> list[float]:
    """A vector of hashes, for texts of examples."""
    digest = hashlib.shake_128(text.encode()).digest(dimensions)
    return [(byte - 127.5) / 127.5 for byte in digest]


class IndexServer(GrpcServer):
    """One index with the id 2. `deployed` says under which names, and of which index, at its endpoint.

    `distance` turns the product of two vectors into a distance, and `measure` is how the index names it.
    `domain` is the host of the endpoint; None: this server.
    """

    def __init__(self) -> None:
        super().__init__()
        self.points: dict[str, Any] = {}
        self.asked: list[Any] = []
        self.deployed = {"example": "2"}
        self.streaming, self.measure = True, "DOT_PRODUCT_DISTANCE"
        self.distance: Callable[[float], float] = float
        self.domain: str | None = None

    def services(self) -> Mapping[str, Mapping[str, Rpc]]:
        """The methods that the provider calls."""
        from google.cloud.aiplatform_v1 import types

        self.types: Any = types
        return {
            f"{_API}.MatchService": {
                "FindNeighbors": Rpc(self._find, types.FindNeighborsRequest, types.FindNeighborsResponse),
                "ReadIndexDatapoints": Rpc(
                    self._read, types.ReadIndexDatapointsRequest, types.ReadIndexDatapointsResponse
                ),
            },
            f"{_API}.IndexService": {
                "UpsertDatapoints": Rpc(
                    self._upsert, types.UpsertDatapointsRequest, types.UpsertDatapointsResponse
                ),
                "RemoveDatapoints": Rpc(
                    self._remove, types.RemoveDatapointsRequest, types.RemoveDatapointsResponse
                ),
                "GetIndex": Rpc(self._get_index, types.GetIndexRequest, types.Index),
            },
            f"{_API}.IndexEndpointService": {
                "GetIndexEndpoint": Rpc(self._endpoint, types.GetIndexEndpointRequest, types.IndexEndpoint)
            },
        }

    async def _endpoint(self, request: Any, context: Any) -> Any:
        domain = f"127.0.0.1:{self.port}" if self.domain is None else self.domain
        parent = request.name.rpartition("/indexEndpoints/")[0]
        deployed = [
            self.types.DeployedIndex(id=id, index=f"{parent}/indexes/{index}")
            for id, index in self.deployed.items()
        ]
        return self.types.IndexEndpoint(
            name=request.name, public_endpoint_domain_name=domain, deployed_indexes=deployed
        )

    async def _get_index(self, request: Any, context: Any) -> Any:
        from google.protobuf import json_format, struct_pb2

        raw = self.types.Index.pb()(name=request.name)
        config = {"config": {"distanceMeasureType": self.measure}}
        raw.metadata.CopyFrom(json_format.ParseDict(config, struct_pb2.Value()))
        return self.types.Index.wrap(raw)

    async def _upsert(self, request: Any, context: Any) -> Any:
        import grpc

        if not self.streaming:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the index takes no streaming updates")
        if any(number.op for point in request.datapoints for number in point.numeric_restricts):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "op is for queries only")
        sizes = {len(point.feature_vector) for point in (*self.points.values(), *request.datapoints)}
        if len(request.datapoints) > _MOST or len(sizes) > 1:
            message = f"{len(request.datapoints)} datapoints of {sorted(sizes)} dimensions"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        self.points |= {point.datapoint_id: point for point in request.datapoints}
        return self.types.UpsertDatapointsResponse()

    async def _remove(self, request: Any, context: Any) -> Any:
        for id in request.datapoint_ids:
            self.points.pop(id, None)
        return self.types.RemoveDatapointsResponse()

    async def _check_deployed(self, id: str, context: Any) -> None:
        import grpc

        if id not in self.deployed:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"DeployedIndex {id!r} was not found")

    async def _read(self, request: Any, context: Any) -> Any:
        await self._check_deployed(request.deployed_index_id, context)
        datapoints = [self.points[id] for id in request.ids if id in self.points]
        return self.types.ReadIndexDatapointsResponse(datapoints=datapoints)

    async def _find(self, request: Any, context: Any) -> Any:
        import grpc

        self.asked.append(request)
        await self._check_deployed(request.deployed_index_id, context)
        query = request.queries[0]
        target = list(query.datapoint.feature_vector)
        if any(len(point.feature_vector) != len(target) for point in self.points.values()):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"the query vector has {len(target)} dimensions"
            )
        products = {
            id: math.fsum(map(operator.mul, point.feature_vector, target))
            for id, point in self.points.items()
            if _lets_through(point, query.datapoint)
        }
        best = sorted(products, key=lambda id: (-products[id], id))[: query.neighbor_count or 10]
        answer = self.types.FindNeighborsResponse
        point = self.types.IndexDatapoint
        neighbours = [
            answer.Neighbor(datapoint=point(datapoint_id=id), distance=self.distance(products[id]))
            for id in best
        ]
        return answer(nearest_neighbors=[answer.NearestNeighbors(neighbors=neighbours)])


def _lets_through(point: Any, query: Any) -> bool:
    """Namespaces are joined by AND, the tokens of one by OR; a namespace that is not asked for is free."""
    tokens = {restrict.namespace: {*restrict.allow_list} for restrict in point.restricts}
    if any(
        tokens.get(restrict.namespace, set()).isdisjoint(restrict.allow_list) for restrict in query.restricts
    ):
        return False
    numbers = {number.namespace: number.value_int for number in point.numeric_restricts}
    return all(
        number.namespace in numbers and _COMPARED[int(number.op)](numbers[number.namespace], number.value_int)
        for number in query.numeric_restricts
    )
