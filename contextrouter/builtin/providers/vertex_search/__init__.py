"""The provider `vertex_search`: a search app of Vertex AI Search."""

from contextrouter.builtin.providers.vertex_search.provider import VertexSearch

__all__ = ["VertexSearch"]
