"""Source code chunking: cuts at functions and classes, with tree-sitter. Pure functions."""

from __future__ import annotations

import importlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from contextrouter.builtin.transforms.chunking.boundaries import TokenizedText
from contextrouter.builtin.transforms.chunking.pieces import Piece, Sizes
from contextrouter.errors import MissingDependency

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

GRAMMARS = {
    "text/x-python": ("tree_sitter_python", "language"),
    "text/javascript": ("tree_sitter_javascript", "language"),
    "text/x-typescript": ("tree_sitter_typescript", "language_typescript"),
    "text/x-tsx": ("tree_sitter_typescript", "language_tsx"),
    "text/x-go": ("tree_sitter_go", "language"),
    "text/x-rust": ("tree_sitter_rust", "language"),
    "text/x-java": ("tree_sitter_java", "language"),
    "text/x-c": ("tree_sitter_c", "language"),
    "text/x-c++": ("tree_sitter_cpp", "language"),
}
"""Media type -> the package of its grammar, and the name of the grammar in it."""
_DEFINITION = re.compile(
    r"(?:(?:generator_)?function|method|(?:abstract_)?class|struct|enum|interface|trait|impl|module|mod|namespace|constructor"
    r"|record|union|type|type_alias|annotation_type|macro)_(?:definition|declaration|item|specifier|statement)"
    r"|(?:decorated_definition|template_declaration|export_statement|internal_module|ambient_declaration|macro_definition)"
)
_HOLDS_OTHERS = re.compile(
    r"(?:abstract_)?class|struct|interface|trait|impl|mod|namespace|record|internal_module|preproc_if"
)
_NAMED_BY = ("name", "declarator", "definition", "declaration", "type")
_WRAPS = ("definition", "declaration")
_DEEPEST = 40
# characters; a longer text, or a text with much longer lines, is generated and cut by length
_LONGEST = 1_000_000
_LINE = 500


class _Unit(NamedTuple):
    """A definition or a statement with the comments above it."""

    start: int
    node: Node
    defines: bool


def code(tokenized: TokenizedText, sizes: Sizes, media_type: str) -> Iterator[Piece]:
    """Yield a piece for each function or class, with its name as path.

    A class that is too long is cut at its members, and a body at its statements. Text before the first
    definition, such as imports, stays with it, or with its first part, unless it is long. Raises
    MissingDependency without the grammar.
    """
    text = tokenized.text
    by_hand = len(text) <= _LONGEST and len(text) <= _LINE * (text.count("\n") + 40)
    if media_type not in GRAMMARS or not by_hand:
        yield Piece(0, len(text))
        return
    # Each character that is not ASCII becomes a letter, so that byte positions are character positions.
    tree = _parser(media_type).parse(re.sub(r"[^\x00-\x7f]", "x", text).encode("ascii"))
    yield from _cut_siblings(_CutContext(tokenized, sizes), tree.root_node.named_children, 0, len(text), ())


@cache
def _parser(media_type: str) -> Parser:
    package, name = GRAMMARS[media_type]
    try:
        from tree_sitter import Language, Parser

        grammar: Any = importlib.import_module(package)
    except ImportError:
        raise MissingDependency(
            package.replace("_", "-"), "code", what="Cutting source code at its functions"
        ) from None
    return Parser(Language(getattr(grammar, name)()))


class _CutContext(NamedTuple):
    tokenized: TokenizedText
    sizes: Sizes

    def size(self, start: int, end: int) -> int:
        return self.tokenized.estimate(start, end)


def _cut_siblings(
    cut: _CutContext, nodes: Sequence[Node], start: int, end: int, path: tuple[str, ...]
) -> Iterator[Piece]:
    """Yield the pieces of `text[start:end]`, which holds `nodes` and the text between them."""
    units = _units(nodes, start)
    if not units or len(path) >= _DEEPEST:
        yield Piece(start, end, path)
        return
    stops = [*(unit.start for unit in units[1:]), end]
    run = head = start  # the pending text starts here; `head` is -1 after the first definition
    for unit, stop in zip(units, stops, strict=True):
        if unit.defines:
            if run < unit.start and not (run == head and _stays_with(cut, run, unit.start, stop, path)):
                yield from _cut_statements(cut, run, unit.start, units, path)
                run = unit.start
            yield from _cut_definition(cut, unit.node, run, stop, path)
            run, head = stop, -1
    if run < end:
        yield from _cut_statements(cut, run, end, units, path)


def _stays_with(cut: _CutContext, start: int, definition: int, end: int, path: tuple[str, ...]) -> bool:
    """Whether the text before the first definition stays with it: both fit in a chunk, or the text is that at
    the beginning of a file, such as imports, and short. A definition that is cut gives it to its first part.
    """
    is_short = not path and cut.size(start, definition) <= cut.sizes.target // 2
    return is_short or cut.size(start, end) <= cut.sizes.target


def _units(nodes: Sequence[Node], start: int) -> list[_Unit]:
    """Return the nodes, each with the comments directly before it."""
    units: list[_Unit] = []
    comment_start = -1
    for node in nodes:
        if "comment" in node.type or node.type in ("attribute_item", "decorator"):
            comment_start = node.start_byte if comment_start < 0 else comment_start
            continue
        unit_start = node.start_byte if comment_start < 0 else comment_start
        if node.type == "expression_statement" and node.named_child_count == 1:
            node = node.named_children[0]  # TypeScript wraps namespaces so
        units.append(_Unit(unit_start, node, bool(_DEFINITION.fullmatch(node.type))))
        comment_start = -1
    if units:
        units[0] = units[0]._replace(start=start)
    return units


def _cut_definition(
    cut: _CutContext, node: Node, start: int, end: int, path: tuple[str, ...]
) -> Iterator[Piece]:
    """Yield a function or class: whole if it fits, else its parts."""
    inner = node
    while definition := next(filter(None, map(inner.child_by_field_name, _WRAPS)), None):
        inner = definition
    if inner.type == "template_declaration" and inner.named_children:
        inner = inner.named_children[-1]
    name = _definition_name(inner, cut.tokenized.text)
    definition_path = (*path, name) if name else path
    if cut.size(start, end) <= (cut.sizes.target if _HOLDS_OTHERS.match(inner.type) else cut.sizes.maximum):
        yield Piece(start, end, definition_path)
    else:
        yield from _cut_siblings(cut, _members(inner), start, end, definition_path)


def _cut_statements(
    cut: _CutContext, start: int, end: int, units: Sequence[_Unit], path: tuple[str, ...]
) -> Iterator[Piece]:
    """Yield statements, several together up to the target. Cut a statement that is too long at its parts."""
    inside = units[bisect_left(units, start, key=_unit_start) : bisect_left(units, end, key=_unit_start)]
    nodes = {unit.start: unit.node for unit in inside}
    for low, high in cut.tokenized.pack(
        [start, *(begin for begin in nodes if begin > start), end], cut.sizes.target
    ):
        node = nodes.get(low)
        if cut.size(low, high) > cut.sizes.maximum and node is not None and (members := _members(node)):
            yield from (
                _cut_siblings(cut, members, low, high, path)
                if members != [node]
                else [Piece(low, high, path)]
            )
        else:
            yield Piece(low, high, path)


def _unit_start(unit: _Unit) -> int:
    return unit.start


def _members(node: Node) -> list[Node]:
    """Return the children of a node's body. Go deeper while one child is nearly the whole body."""
    while True:
        node = node.child_by_field_name("body") or node
        children = node.named_children
        largest = max(children, key=_length, default=None)
        if largest is None or _length(largest) < 0.8 * _length(node) or not largest.named_child_count:
            return children
        node = largest


def _length(node: Node) -> int:
    return node.end_byte - node.start_byte


def _definition_name(node: Node | None, text: str) -> str:
    """Return the name of a definition, found through its declarators, or ""."""
    for _ in range(8):
        if node is None:
            break
        if node.type.endswith("identifier") or node.type == "generic_type":
            return text[node.start_byte : node.end_byte][:200]
        node = next(filter(None, map(node.child_by_field_name, _NAMED_BY)), None)
    return ""
