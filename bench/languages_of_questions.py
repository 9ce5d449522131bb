"""Languages of short questions: how many of them the interpreter `language` tells, and how many wrongly.

    python bench/languages_of_questions.py FOLDER

FOLDER holds `queries.dev.jsonl` with lines of {"text", "lang"}, as of XQuAD. Every question is cut to its
first five words; where a script has no spaces, to its first ten characters. All languages of the file are
possible. Exits 1 if more than .5 % get a wrong language, or fewer than 90 % the right one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from time import process_time

from contextrouter.builtin.interpreters.language import Language
from contextrouter.model import Intent, Request
from contextrouter.testing.builders import interpreter_context

WORDS, CHARACTERS = 5, 10
UNSPACED = ("ja", "km", "lo", "my", "th", "zh")
MOST_WRONG, LEAST_RIGHT = 0.005, 0.9


def cut(text: str, language: str) -> str:
    """Return the beginning of a question."""
    return text[:CHARACTERS] if language in UNSPACED else " ".join(text.split()[:WORDS])


async def told(texts: list[tuple[str, str]]) -> dict[str, Counter[str]]:
    """Return for each language how its questions were labelled."""
    interpreter = Language(languages=sorted({language for language, _ in texts}))
    await interpreter.open()
    counts: dict[str, Counter[str]] = {language: Counter() for language in interpreter.languages}
    for language, text in texts:
        context = interpreter_context(Request(question=text))
        intent = await interpreter.interpret(Intent(question=text, queries=(text,)), context)
        counts[language][intent.language or "none"] += 1
    await interpreter.aclose()
    return counts


def main(folder: Path) -> bool:
    """Print a table and whether the limits hold."""
    lines = (folder / "queries.dev.jsonl").read_text("utf-8").splitlines()
    texts = [(entry["lang"], cut(entry["text"], entry["lang"])) for entry in map(json.loads, lines)]
    started = process_time()
    counts = asyncio.run(told(texts))
    took = process_time() - started
    print(f"{'language':<10}{'questions':>10}{'right':>8}{'none':>8}{'wrong':>8}  labels that are wrong")
    for language, labels in counts.items():
        n, right, none = labels.total(), labels[language], labels["none"]
        wrong = {label: count for label, count in labels.items() if label not in (language, "none")}
        rates = f"{right / n:8.3f}{none / n:8.3f}{sum(wrong.values()) / n:8.4f}"
        print(f"{language:<10}{n:>10}{rates}  {', '.join(f'{k} {v}' for k, v in wrong.items())}")
    right = sum(labels[language] for language, labels in counts.items()) / len(texts)
    none = sum(labels["none"] for labels in counts.values()) / len(texts)
    wrong_share = 1 - right - none
    print(
        f"{len(texts)} questions: {right:.2%} right, {none:.2%} none, {wrong_share:.2%} wrong;"
        f" {took / len(texts) * 1e3:.2f} ms of CPU for one"
    )
    return wrong_share <= MOST_WRONG and right >= LEAST_RIGHT


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python bench/languages_of_questions.py FOLDER")
    sys.exit(0 if main(Path(sys.argv[1])) else 1)
