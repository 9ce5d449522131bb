"""Text quality: drops texts with little content, such as navigation, footers and repeated texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from contextrouter.contracts import Stage, StageContext
from contextrouter.model import Envelope
from contextrouter.text.analysis import atoms, words

_FULL = 200
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]?")


class Quality(Stage):
    """Drops documents whose quality is below `threshold`.

    Quality is 0 for fewer than `minimum_words` words; else min(0.8, 0.2 + words ÷ 200 × 0.6) + min(0.2,
    overlap × 0.2), where overlap is the share of the question's words that the text has. In scripts without
    spaces two characters count as a word. Sentences that `repeated` documents or more have in common (0:
    never looked for) do not count as words: a disclaimer is no content. Where nothing would be left, all
    stays, with the signal `quality`.
    """

    switch = ""

    def __init__(self, *, threshold: float = 0.3, minimum_words: int = 20, repeated: int = 0) -> None:
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold {threshold!r} is not between 0 and 1.")
        if minimum_words < 0:
            raise ValueError(f"minimum_words {minimum_words!r} is below 0.")
        if repeated < 0 or repeated == 1:
            raise ValueError(
                f"repeated {repeated!r} is out of range; give 2 or more, or 0 to look for nothing."
            )
        self._threshold, self._minimum, self._repeated = threshold, minimum_words, repeated

    def quality(self, text: str, question: str) -> float:
        """Quality in [0, 1]."""
        tokens = atoms(text)
        cjk = sum(1 for atom in tokens if len(atom) == 1 and not atom.isascii())
        count = len(tokens) - cjk + cjk // 2
        if count < self._minimum:
            return 0.0
        question_terms, text_terms = set(words(question)), set(tokens) | set(words(text))
        overlap = len(question_terms & text_terms) / len(question_terms) if question_terms else 0.0
        return min(0.8, 0.2 + count / _FULL * 0.6) + min(0.2, overlap * 0.2)

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return those that are good enough, in their order; all where none is."""
        common = self._common(envelopes)
        question = context.intent.text
        rated = []
        for envelope in envelopes:
            text = envelope.document.content
            if common:
                text = " ".join(s for s in _SENTENCE.findall(text) if s.strip().casefold() not in common)
            rated.append(envelope.scored(envelope.score, quality=self.quality(text, question)))
        if not any(envelope.signals["quality"] >= self._threshold for envelope in rated):
            return rated
        reason = f"quality below {self._threshold:g}"
        return [
            e if e.signals["quality"] >= self._threshold else e.drop(f"{reason}: {e.signals['quality']:.2f}")
            for e in rated
        ]

    def _common(self, envelopes: Sequence[Envelope]) -> set[str]:
        if not self._repeated:
            return set()
        counts: dict[str, int] = {}
        for envelope in envelopes:
            for sentence in {s.strip().casefold() for s in _SENTENCE.findall(envelope.document.content)}:
                counts[sentence] = counts.get(sentence, 0) + 1
        return {sentence for sentence, count in counts.items() if count >= self._repeated and sentence}
