"""The provider `vertex_index`: vectors in an index of Vertex AI Vector Search 1, texts in another store."""

from contextrouter.builtin.providers.vertex_index.provider import VertexIndex

__all__ = ["VertexIndex"]
