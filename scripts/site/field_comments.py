"""A griffe extension for the API reference: the comment behind a field is its description."""

from __future__ import annotations

import ast
import re
from typing import Any

from griffe import Attribute, Docstring, Extension

COMMENT = re.compile(r"^[^'\"#]*(?:(?:'[^']*'|\"[^\"]*\")[^'\"#]*)*#\s+(?!type:|noqa)(\S.*)$")


class FieldComments(Extension):
    """Takes `limit: int = 10  # at most so many` for a field with the description "at most so many"."""

    def on_attribute_instance(self, *, node: Any, attr: Attribute, **kwargs: Any) -> None:
        """Read the comment on the last line of an attribute without a docstring.

        Of an attribute that a method sets, only the name is shown: its value there is code.
        """
        if attr.annotation is None and "instance-attribute" in attr.labels:
            attr.value = None
        if attr.docstring is not None or not isinstance(node, ast.AnnAssign) or not attr.lines_collection:
            return
        line = attr.lines_collection[attr.filepath][(node.end_lineno or node.lineno) - 1]
        if comment := COMMENT.match(line):
            attr.docstring = Docstring(comment[1], parent=attr, lineno=node.lineno)
