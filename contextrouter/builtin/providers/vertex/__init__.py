"""The provider `vertex`: documents in a collection of Vertex AI Vector Search 2."""

from contextrouter.builtin.providers.vertex.provider import Vertex

__all__ = ["Vertex"]
