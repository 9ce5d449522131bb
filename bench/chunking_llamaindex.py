"""LlamaIndex's splitters, counting with the tokenizer of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.node_parser import MarkdownNodeParser, SentenceSplitter, TokenTextSplitter
from llama_index.core.schema import Document

from contextrouter.text import tokens


def contestants(target: int, overlap: int) -> dict[str, dict[str, Callable[[str], Sequence[Any]]]]:
    """Name -> strategy -> what cuts a text."""
    tokenizer: Any = tokens._tokenizer()

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids  # type: ignore[no-any-return]  # the tokenizer comes without types

    sentences = SentenceSplitter(chunk_size=target, chunk_overlap=overlap, tokenizer=encode)
    plain = TokenTextSplitter(chunk_size=target, chunk_overlap=overlap, tokenizer=encode)
    markdown = MarkdownNodeParser()

    def headings(text: str) -> Sequence[Any]:
        return sentences.get_nodes_from_documents(markdown.get_nodes_from_documents([Document(text=text)]))

    return {
        "SentenceSplitter": {"fixed": sentences.split_text},
        "TokenTextSplitter": {"fixed": plain.split_text},
        "MarkdownNodeParser + SentenceSplitter": {"headings": headings},
    }
