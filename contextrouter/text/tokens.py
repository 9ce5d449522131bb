"""Counting tokens: by the tokenizer shipped with the default embedder, or by an estimate when `tokenizers` is
not installed.

`exact()` says which. The tokenizer knows no special tokens: "[CLS]" or "<|endoftext|>" in a text is text. An
unknown run of characters (another script, emoji) counts one token per character, so that no text is ever
counted too short.

The estimate: each character of a script written without spaces (Chinese, Japanese, Thai, …) is a token; so is
each mark, symbol or emoji; a run of letters and digits is one token per started 4 characters. White space is
none.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from contextrouter.text.scripts import WITHOUT_SPACES

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_FILE = os.path.join(os.path.dirname(__file__), "..", "data", "static", "tokenizer.json")
_UNKNOWN = "[UNK]"
# Patterns are texts, which `re` compiles when they are first used and keeps: to compile them takes longer
# than all imports here.
_ESTIMATED = rf"[{WITHOUT_SPACES}]|[^\W_{WITHOUT_SPACES}]{{1,4}}|[^\w\s]|_"

# The tokenizer never joins what these separate, so that each distinct word of a text needs to be tokenized
# but once. It takes time by the square of a word's length: what is longer than any word is cut.
_ALONE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df" + r"!-/:-@\[-`{-~"
"""Ideographs and ASCII punctuation: each is a token of its own."""
_WORD = rf"[{_ALONE}]|[^ \t\r\n{_ALONE}]{{1,128}}"
_APART = rf"[ \t\r\n{_ALONE}]"
_LONE_SURROGATE = "[\ud800-\udfff]"

Spans: TypeAlias = Sequence[tuple[int, int]]


class Pieces(NamedTuple):
    """The tokens of a word: where each lies within it, and the numbers of those that the vocabulary has."""

    spans: Spans
    numbers: Sequence[int]


MOST_SEEN, LONGEST_SEEN = 50_000, 40
"""How many words, up to which length, are remembered with their tokens: most words of a text have been seen
in another.
"""

_lock = threading.Lock()
_seen: dict[str, Pieces] = {}
_loaded: list[Tokenizer | None] = []  # empty: not tried yet; None: not installed


def exact() -> bool:
    """Whether tokens are counted by the shipped tokenizer; False: they are estimated."""
    return _tokenizer() is not None


def count(text: str) -> int:
    """How many tokens `text` has."""
    tokenizer = _tokenizer()
    if tokenizer is None:
        return sum(1 for _ in re.finditer(_ESTIMATED, text))
    words = Counter(re.findall(_WORD, text))
    return sum([len(pieces.spans) * words[word] for word, pieces in _pieces_of(tokenizer, words).items()])


def numbers(text: str) -> list[int]:
    """The numbers of the tokens of `text` that the vocabulary has, in any order. Needs the tokenizer."""
    tokenizer = _tokenizer()
    assert tokenizer is not None
    words = Counter(re.findall(_WORD, text))
    pieces = _pieces_of(tokenizer, words)
    return [number for word, times in words.items() for number in (*pieces[word].numbers,) * times]


def spans(text: str) -> list[tuple[int, int]]:
    """Where each token of `text` lies: (start, end) in characters, in order, never overlapping, none
    empty.
    """
    tokenizer = _tokenizer()
    if tokenizer is None:
        return [match.span() for match in re.finditer(_ESTIMATED, text)]
    words = [(match.start(), match[0]) for match in re.finditer(_WORD, text)]
    within = _pieces_of(tokenizer, {word for _, word in words})
    return [(at + start, at + end) for at, word in words for start, end in within[word].spans]


def starts(text: str) -> Iterator[int]:
    """Where each token of `text` starts, in characters, in order."""
    tokenizer = _tokenizer()
    if tokenizer is None:
        return (match.start() for match in re.finditer(_ESTIMATED, text))
    words = [(match.start(), match[0]) for match in re.finditer(_WORD, text)]
    within = _pieces_of(tokenizer, {word for _, word in words})
    return (at + start for at, word in words for start, _ in within[word].spans)


def parts(text: str, position: int) -> bool:
    """Whether no token of `text` can reach across `position`, so that tokens on both sides are what they are
    without the other.
    """
    if not 0 < position < len(text) or text[position - 1] in " \n" or text[position] in " \n":
        return True
    return bool(re.match(_APART, text[position - 1]) or re.match(_APART, text[position]))


def truncate(text: str, limit: int) -> str:
    """The longest beginning of `text` that ends with a token and has at most `limit` of them; all of `text`
    when it fits.
    """
    if limit <= 0:
        return ""
    # No token is shorter than a character, and few are longer than a word: look at the beginning first.
    beginning = 16 * limit + 64
    while beginning < len(text):
        tokens_of_text = spans(text[:beginning])
        if len(tokens_of_text) > limit + 64:  # past what cutting the text there can have changed
            return _fitting(text, tokens_of_text, limit)
        beginning *= 4
    tokens_of_text = spans(text)
    return text if len(tokens_of_text) <= limit else _fitting(text, tokens_of_text, limit)


def _fitting(text: str, tokens_of_text: list[tuple[int, int]], limit: int) -> str:
    """Cut after `limit` tokens, earlier where the cut itself makes more tokens (in the middle of a word)."""
    number = limit
    while number > 0:
        cut = text[: tokens_of_text[number - 1][1]]
        excess = count(cut) - limit
        if excess <= 0:
            return cut
        number -= excess
    return ""


def _tokenizer() -> Tokenizer | None:
    """The shipped tokenizer, loaded once; None when `tokenizers` is not installed."""
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.append(_load())
    return _loaded[0]


def _load() -> Tokenizer | None:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    tokenizer = Tokenizer.from_file(_FILE)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _pieces_of(tokenizer: Tokenizer, words: Iterable[str]) -> dict[str, Pieces]:
    """The tokens of each distinct word. Words that were seen before are not tokenized again."""
    by_word: dict[str, Pieces] = {}
    for word in words:
        pieces = _seen.get(word)
        if pieces is None:
            # Word by word: a batch wakes the tokenizer's threads, which takes longer for words, however many.
            clean = re.sub(_LONE_SURROGATE, "\u25a1", word)
            pieces = _pieces(tokenizer.encode(clean, add_special_tokens=False))
            if len(word) <= LONGEST_SEEN:
                if len(_seen) >= MOST_SEEN:
                    _seen.clear()
                _seen[word] = pieces
        by_word[word] = pieces
    return by_word


def _pieces(encoding: Encoding) -> Pieces:
    """The encoding, with every character of an unknown run on its own."""
    spans: list[tuple[int, int]] = []
    numbers: list[int] = []
    for (start, end), name, number in zip(encoding.offsets, encoding.tokens, encoding.ids, strict=True):
        if name == _UNKNOWN:
            spans += [(i, i + 1) for i in range(start, end)]
        else:
            spans.append((start, end))
            numbers.append(number)
    return Pieces(spans, numbers)
