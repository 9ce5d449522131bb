"""The provider `postgres`: documents in Postgres with pgvector."""

from contextrouter.builtin.providers.postgres.provider import Postgres

__all__ = ["Postgres"]
