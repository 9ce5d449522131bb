"""Follow-up questions: a question that refers back becomes one that stands on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextrouter.builtin.interpreters.back_references import choose_language, content_words, refers_back
from contextrouter.contracts import Generator, Interpreter, InterpreterContext
from contextrouter.model import Intent
from contextrouter.text.query_syntax import drop_exclusions, parse, write_exclusions

NOTE = "followup"
"""Key in `Intent.attributes`: of which earlier questions of the asker the standalone one was made."""
_TURNS = 3  # turns of the asker that are read, the latest ones
_TURNS_FOR_MODEL = 2
_READ = 2_000  # characters of a turn
_MOST_WORDS = 12  # that earlier turns add
_LONGEST = 300  # characters of what a model writes
_TASK = (
    "The lines below are questions of one person, oldest first. Rewrite the last one so that it can be"
    " understood without the others. Keep its language, names, numbers and quotation marks. Do not answer it."
    " Write the question alone, on one line."
)


class Followup(Interpreter):
    """Makes a question such as "And with what?" understandable from the asker's own turns before it.

    A question refers back if it begins with a word such as "and" or "what about", has a pronoun for which it
    names nothing, or has fewer than three content words. The rules have the words of English, German, French,
    Spanish and Italian; in other languages only the number of words counts. Turns of an assistant are never
    read: they may quote anybody.

    Without `generator`, the content words of the asker's previous turn are put before the question; if that
    turn refers back too, also those of the turn before it. With `generator`, the model rewrites the question
    from the asker's last two turns. The result is `Intent.text` and the second query; the literal question
    stays the first one. Exclusions and phrases of the question stay.
    """

    def __init__(self, *, generator: Generator | None = None) -> None:
        self._generator = generator

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Return the intent with a standalone question, if its question refers back and there are turns.

        Raises what the generator raises, and ValueError when it does not write one question.
        """
        turns = _turns_of_asker(context.request.history)
        if not turns:
            return intent
        language = choose_language(intent.question, turns[-1], intent.language)
        if not refers_back(intent.question, language):
            return intent
        if self._generator is None:
            words = _words_of_turns(turns, intent, language)
            text, note = " ".join((*words, intent.text)), f"words of earlier questions: {', '.join(words)}"
            if not words:
                return intent
        else:
            text = await _rewrite(self._generator, turns[-_TURNS_FOR_MODEL:], intent.text)
            note = "written by a model"
        literal, *others = intent.queries or (intent.question,)
        return intent.replace(
            text=text,
            queries=(literal, text, *others),
            derived=(literal, *intent.derived),  # "And with what?" fits any text: it stands behind
            attributes={**intent.attributes, NOTE: note},
        )


def _turns_of_asker(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the latest turns of the asker, oldest first."""
    contents = [turn.get("content") for turn in history if turn.get("role") == "user"]
    return [text[:_READ] for text in contents if isinstance(text, str) and text.strip()][-_TURNS:]


def _words_of_turns(turns: Sequence[str], intent: Intent, language: str) -> list[str]:
    """Return the content words of the latest turn, after those of the turns that it refers back to; without
    those that the question has.
    """
    repeated = {word.casefold() for word in content_words(intent.text, language)}
    words: list[str] = []
    for at in range(len(turns) - 1, -1, -1):
        spoken = choose_language(turns[at], intent.question, None)
        added = [w for w in content_words(parse(turns[at]).text, spoken) if w.casefold() not in repeated]
        repeated.update(word.casefold() for word in added)
        words = [*added, *words]
        if not refers_back(turns[at], spoken):
            break
    return words[:_MOST_WORDS]


async def _rewrite(generator: Generator, turns: Sequence[str], question: str) -> str:
    """Return the question as the model writes it, with the question's own phrases and exclusions and no
    others. Raises ValueError for anything but one line of at most 300 characters.
    """
    lines = "\n".join(" ".join(text.split()) for text in (*turns, question))
    completion = await generator.complete(
        [{"role": "system", "content": _TASK}, {"role": "user", "content": lines}]
    )
    text = completion.text.strip()
    if not text or len(text) > _LONGEST or not text.isprintable() or completion.finish == "length":
        raise ValueError(f"the model wrote {text!r:.80}, not a question of one line")
    parsed = parse(question)
    plain = parse(drop_exclusions(text)).text
    phrases = " OR ".join
    required = (phrases(f'"{text}"' for text in group) for group in parsed.required)
    return " ".join(filter(None, (plain, *required, write_exclusions(parsed.excluded))))
