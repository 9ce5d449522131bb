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
from collections.abc import Sequence
from itertools import accumulate
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
_SPACES = " \t\r\n"
_WORD = rf"[{_ALONE}]|[^{_SPACES}{_ALONE}]{{1,128}}"
_PART = rf"(?:{_WORD})[{_SPACES}]*|[{_SPACES}]+"
"""A word with the space behind it, or the space at the beginning of a text."""
_APART = rf"[ \t\r\n{_ALONE}]"
_LONE_SURROGATE = "[\ud800-\udfff]"

Spans: TypeAlias = Sequence[tuple[int, int]]


class Pieces(NamedTuple):
    """The tokens of a word: where each lies within it, and the numbers of those that the vocabulary has."""

    spans: Spans
    numbers: Sequence[int]


_NOTHING = Pieces((), ())
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
    recall, words = _seen.get, Counter(re.findall(_WORD, text))
    return sum(
        [len((recall(word) or _tokenize(tokenizer, word)).spans) * times for word, times in words.items()]
    )


def numbers(text: str) -> dict[int, int]:
    """The numbers of the tokens of `text` that the vocabulary has, and how often. Needs the tokenizer."""
    tokenizer = _tokenizer()
    assert tokenizer is not None
    recall, times_of = _seen.get, dict[int, int]()
    for word, times in Counter(re.findall(_WORD, text)).items():
        for number in (recall(word) or _tokenize(tokenizer, word)).numbers:
            times_of[number] = times_of.get(number, 0) + times
    return times_of


def spans(text: str) -> list[tuple[int, int]]:
    """Where each token of `text` lies: (start, end) in characters, in order, never overlapping, none
    empty.
    """
    tokenizer = _tokenizer()
    if tokenizer is None:
        return [match.span() for match in re.finditer(_ESTIMATED, text)]
    words = [(match.start(), match[0]) for match in re.finditer(_WORD, text)]
    within = {word: (_seen.get(word) or _tokenize(tokenizer, word)).spans for word in {w for _, w in words}}
    return [(at + start, at + end) for at, word in words for start, end in within[word]]


def starts(text: str, begin: int = 0) -> list[int]:
    """Where each token of `text` starts, in characters, in order; `begin` is added to each."""
    tokenizer = _tokenizer()
    if tokenizer is None:
        return [begin + match.start() for match in re.finditer(_ESTIMATED, text)]
    # All of the text in parts, whose lengths give the places: twice as fast as asking each match for its own.
    parts = re.findall(_PART, text)
    within: dict[str, list[int]] = {}
    for part in set(parts):
        word = part.rstrip(_SPACES)
        pieces = _seen.get(word) or (_tokenize(tokenizer, word) if word else _NOTHING)
        within[part] = [start for start, _ in pieces.spans]
    places = accumulate(map(len, parts), initial=begin)
    return [place + start for place, part in zip(places, parts, strict=False) for start in within[part]]


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


def _tokenize(tokenizer: Tokenizer, word: str) -> Pieces:
    """The tokens of a word that was not seen before, or is too long to be remembered."""
    # Word by word: a batch wakes the tokenizer's threads, which takes longer for words, however many.
    clean = re.sub(_LONE_SURROGATE, "\u25a1", word)
    pieces = _pieces(tokenizer.encode(clean, add_special_tokens=False))
    if len(word) <= LONGEST_SEEN:
        if len(_seen) >= MOST_SEEN:
            _seen.clear()
        _seen[word] = pieces
    return pieces


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
