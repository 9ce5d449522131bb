"""Thinking of a model: what stands in `<think>` before its answer is kept apart from the answer."""

from __future__ import annotations

import re

_OPENING = re.compile(r"\s*<(think|thinking|reasoning)>", re.I)
_TAGS = ("<think>", "<thinking>", "<reasoning>")


class Thinking:
    """Splits the pieces of one answer into thinking and answer, wherever the tags are cut.

    Thinking stands before the answer only: a tag within the answer is text. Thinking that does not end is
    thinking to the end.
    """

    def __init__(self) -> None:
        self._held = ""  # what may become a tag
        self._closing = ""  # the tag that ends the present thinking
        self._answering = False
        self._thinks = False  # whether thinking came: blanks between it and the answer belong to neither

    def feed(self, piece: str) -> tuple[str, str]:
        """Add a piece. Returns the thinking and the answer that are ready."""
        if self._answering:
            return "", piece
        self._held += piece
        thinking = ""
        while True:
            if self._closing:
                part, ended = self._take_thinking()
                thinking += part
                if not ended:
                    return thinking, ""
            if match := _OPENING.match(self._held):
                self._thinks = True
                self._closing, self._held = f"</{match[1].lower()}>", self._held[match.end() :]
                continue
            if _may_open(self._held):
                return thinking, ""
            return thinking, self._answer()

    def end(self) -> tuple[str, str]:
        """End the answer. Returns the thinking and the answer that waited."""
        text, self._held = self._held, ""
        if self._closing:
            return text, ""
        return "", text.lstrip() if self._thinks else text

    def _take_thinking(self) -> tuple[str, bool]:
        """Return the thinking that is ready, and whether it ended."""
        end = self._held.lower().find(self._closing)
        if end >= 0:
            part, self._held = self._held[:end], self._held[end + len(self._closing) :]
            self._closing, self._held = "", self._held.lstrip()
            return part, True
        size = next(
            (
                n
                for n in range(len(self._closing) - 1, 0, -1)
                if self._held.lower().endswith(self._closing[:n])
            ),
            0,
        )
        boundary = len(self._held) - size
        part, self._held = self._held[:boundary], self._held[boundary:]
        return part, False

    def _answer(self) -> str:
        self._answering = True
        text, self._held = self._held, ""
        return text.lstrip() if self._thinks else text


def _may_open(text: str) -> bool:
    """Whether a text is blank, or the beginning of a tag that opens thinking."""
    bare = text.lstrip().lower()
    return any(tag.startswith(bare) for tag in _TAGS)
