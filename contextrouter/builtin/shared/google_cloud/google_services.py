"""The Google services that plugins ask: name, client package, host, and the role that a caller needs."""

from __future__ import annotations

from contextrouter.builtin.shared.google_cloud.cloud_connection import Service

VECTOR_SEARCH = Service(
    "Vector Search",
    "google-cloud-vectorsearch",
    "google.cloud.vectorsearch_v1",
    "vectorsearch.googleapis.com",
    "roles/vectorsearch.viewer, or roles/vectorsearch.admin to fill it",
    ", or make the collection: `contextrouter db migrate`",
)
RANKING = Service(
    "Ranking API",
    "google-cloud-discoveryengine",
    "google.cloud.discoveryengine_v1",
    "discoveryengine.googleapis.com",
    "roles/discoveryengine.viewer",
)


def vertex_ai(location: str, name: str = "Vertex AI") -> Service:
    """The service of models and indexes in a region, or "global"."""
    host = f"{_prefix(location)}aiplatform.googleapis.com"
    role = "roles/aiplatform.user"
    return Service(name, "google-cloud-aiplatform", "google.cloud.aiplatform_v1", host, role)


def vertex_ai_search(location: str) -> Service:
    """The service of search apps in "global", "eu" or "us"."""
    host = f"{_prefix(location)}discoveryengine.googleapis.com"
    return RANKING._replace(name="Vertex AI Search", host=host)


def _prefix(location: str) -> str:
    return "" if location == "global" else f"{location}-"
