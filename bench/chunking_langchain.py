"""LangChain's splitters, counting with the tokenizer of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_text_splitters import MarkdownHeaderTextSplitter, RecursiveCharacterTextSplitter, Tokenizer
from langchain_text_splitters.base import split_text_on_tokens

from contextrouter.text import tokens


def contestants(target: int, overlap: int) -> dict[str, dict[str, Callable[[str], Sequence[Any]]]]:
    """Name -> strategy -> what cuts a text."""
    tokenizer: Any = tokens._tokenizer()

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids  # type: ignore[no-any-return]  # the tokenizer comes without types

    recursive = RecursiveCharacterTextSplitter(
        chunk_size=target, chunk_overlap=overlap, length_function=lambda text: len(encode(text))
    )
    every = Tokenizer(chunk_overlap=overlap, tokens_per_chunk=target, decode=tokenizer.decode, encode=encode)
    markdown = MarkdownHeaderTextSplitter([("#", "1"), ("##", "2"), ("###", "3")], strip_headers=False)
    return {
        "RecursiveCharacterTextSplitter": {"fixed": recursive.split_text},
        "split_text_on_tokens": {"fixed": lambda text: split_text_on_tokens(text=text, tokenizer=every)},
        "MarkdownHeaderTextSplitter + Recursive…": {
            "headings": lambda text: recursive.split_documents(markdown.split_text(text))
        },
    }
