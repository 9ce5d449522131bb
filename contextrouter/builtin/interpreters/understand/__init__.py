"""The interpreter `understand`: one language model fills in what the question leaves open."""

from contextrouter.builtin.interpreters.understand.interpreter import Understand

__all__ = ["Understand"]
