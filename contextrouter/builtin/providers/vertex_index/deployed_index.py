"""What an index endpoint and an index say of themselves: host, what is deployed there, and its measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from contextrouter.builtin.shared.google_cloud.cloud_connection import CloudConnection

_CONVERSIONS: dict[str, Callable[[float], float]] = {
    "DOT_PRODUCT_DISTANCE": float,
    "COSINE_DISTANCE": lambda distance: 1.0 - distance,
    "SQUARED_L2_DISTANCE": lambda distance: 1.0 - distance / 2,
}
PRODUCT = "DOT_PRODUCT_DISTANCE"


class DeployedIndex(NamedTuple):
    """A deployed index: the host that answers for it, and its measure, as its configuration names it."""

    host: str
    measure: str


def to_cosine(measure: str, distance: float) -> float:
    """Return the cosine of two unit vectors at a distance."""
    return _CONVERSIONS[measure](distance)


async def find_deployed(
    connection: CloudConnection, location: str, endpoint: str, deployed: str, index: str
) -> DeployedIndex:
    """Ask for an index that is deployed at an endpoint. Raises SourceError where there is none of that name,
    where it is of another index than the one that is written to, and where it measures what is no cosine.
    """
    from google.cloud.aiplatform_v1 import GetIndexEndpointRequest

    name = f"{location}/indexEndpoints/{endpoint}"
    connection.resource = name
    client = connection.client("index_endpoint_service")
    answer = await connection.call(client.get_index_endpoint, GetIndexEndpointRequest(name=name))
    index_of = {item.id: item.index.rpartition("/")[2] for item in answer.deployed_indexes}
    if deployed not in index_of:
        names = ", ".join(map(repr, sorted(index_of))) or "nothing"
        raise connection.answer_error(
            f"has no deployed index {deployed!r} at the endpoint {endpoint!r}",
            f"Deployed there: {names}. Set deployed_index to one of them, or deploy it.",
        )
    of_index = index_of[deployed]
    if index and index != of_index:
        raise connection.answer_error(
            f"has the index {of_index!r} deployed as {deployed!r}, and another is written to, {index!r}",
            f"Set index = {of_index!r}, or name another deployed_index.",
        )
    measure = await _find_measure(connection, f"{location}/indexes/{of_index}")
    return DeployedIndex(str(answer.public_endpoint_domain_name), measure)


async def _find_measure(connection: CloudConnection, name: str) -> str:
    from google.cloud.aiplatform_v1 import GetIndexRequest

    connection.resource = name
    client = connection.client("index_service")
    answer = await connection.call(client.get_index, GetIndexRequest(name=name))
    fields: Any = type(answer).pb(answer).metadata.struct_value.fields
    config = fields["config"].struct_value.fields if "config" in fields else {}
    named = config["distanceMeasureType"].string_value if "distanceMeasureType" in config else ""
    measure = named or PRODUCT  # the default of the service
    if measure not in _CONVERSIONS:
        raise connection.answer_error(
            f"compares with {measure!r} in {name!r}, which is no cosine of vectors",
            f"Make an index with one of {', '.join(_CONVERSIONS)}.",
        )
    return measure
