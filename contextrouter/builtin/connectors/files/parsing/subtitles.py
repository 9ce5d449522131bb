"""Subtitles (SubRip, WebVTT) to text: cues joined to paragraphs, repeats removed, times as metadata."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from contextrouter.builtin.connectors.files.parsing.media import PLAIN
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable

_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{2})[.,](\d{1,3})"
_TIMES = re.compile(rf"^\s*{_TIME}\s*-->\s*{_TIME}", re.M)
_VOICE = re.compile(r"<v(?:\.[^\s>]*)?\s+([^>]{1,100})>")
_TAG = re.compile(r"</?[a-zA-Z][^>\n]{0,200}>|<[\d:.]{5,20}>|\{\\[^}\n]{0,200}\}")
_NUMBER = re.compile(r"\n\d+\s*$")
_PAUSE = 3.0
"""Seconds without a cue after which a new paragraph begins."""
_LONG = 600
"""Characters after which a paragraph ends with its sentence."""


class _Cue(NamedTuple):
    start: float
    end: float
    speaker: str
    text: str


def read_subtitles(data: bytes) -> Parsed:
    """What was said. `metadata["cue_starts"]` holds the place (characters) and the time (seconds) of each
    cue.
    """
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    transcript, starts, speaker, paragraph, previous = "", [], "", 0, None
    for cue in _without_repeats(_cues(text)):
        is_new = previous is not None and (
            cue.start - previous.end >= _PAUSE
            or (cue.speaker and cue.speaker != speaker)
            or (len(transcript) - paragraph > _LONG and transcript.rstrip().endswith((".", "!", "?", "…")))
        )
        if transcript:
            transcript += "\n\n" if is_new else " "
        if is_new:
            paragraph = len(transcript)
        starts.append([len(transcript), cue.start])
        transcript += f"{cue.speaker}: {cue.text}" if cue.speaker and cue.speaker != speaker else cue.text
        speaker, previous = cue.speaker or speaker, cue
    if previous is None:
        raise Unreadable("holds no cue.")
    return Parsed(text=transcript, media_type=PLAIN, metadata={"cue_starts": starts, "seconds": previous.end})


def _cues(text: str) -> Iterator[_Cue]:
    """Yield the cues; notes, styles and regions have no time and are no cues."""
    matches = list(_TIMES.finditer(text))
    for match, following in zip(matches, [*matches, None][1:], strict=True):
        begin = text.find("\n", match.end())
        block = "" if begin < 0 else text[begin + 1 : following.start() if following else len(text)]
        words, blank, _ = block.partition("\n\n")
        if following and not blank:
            words = _NUMBER.sub("", words)  # of the next cue, which stands without a blank line before it
        if block.startswith("\n"):
            words = ""
        voice = _VOICE.search(words)
        plain = " ".join(html.unescape(_TAG.sub("", _VOICE.sub("", words))).split())
        if plain:
            numbers = match.groups()
            yield _Cue(
                _seconds(*numbers[:4]), _seconds(*numbers[4:]), voice[1].strip() if voice else "", plain
            )


def _without_repeats(cues: Iterator[_Cue]) -> Iterator[_Cue]:
    """Yield cues without what the one before already showed: live captions roll up."""
    visible = ""
    for cue in cues:
        text = cue.text
        if visible and (text == visible or text.startswith(visible + " ")):
            added = text[len(visible) :].strip()
        else:
            added = text
        visible = text
        if added:
            yield cue._replace(text=added)


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + int(fraction.ljust(3, "0")) / 1000
