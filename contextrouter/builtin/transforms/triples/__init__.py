"""The transform `triples`: facts from documents."""

from contextrouter.builtin.transforms.triples.transform import Triples

__all__ = ["Triples"]
