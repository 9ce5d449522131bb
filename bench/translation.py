"""Questions in other languages over an English store, with a translator that is right, wrong, or not there.

    python bench/translation.py FOLDER [--languages de es ru] [--questions 200]

FOLDER is the collection XQuAD: `corpus.jsonl.gz` and `queries.dev.jsonl`, with parallel ids. The English
passages are in a SQLite store. Each question is asked through the interpreters `language` and `understand`
(`fill = ["text"]`); its generator says the English question, nonsense, nothing within the time, or 429. It
prints how often the passage is among the ten best. Exits 1 if the translated question is found less often
than the English one, or a failing translator finds less than none.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contextrouter import ContextRouter, Document, Entry
from contextrouter.builtin.embedders.static import Static
from contextrouter.builtin.interpreters.language import Language
from contextrouter.builtin.interpreters.understand import Understand
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Completion, Generator
from contextrouter.errors import PluginError

NONSENSE = ("lorem ipsum dolor sit amet", "the banana of the first century was a green number", "1 2 3")


class Translator(Generator):
    """Answers with the English question, or fails as it is told."""

    def __init__(self, english: Mapping[str, str], language: str, way: str) -> None:
        self.english, self.language, self.way = english, language, way
        self.question = ""  # that is asked now

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        if self.way == "hangs":
            await asyncio.sleep(60)
        if self.way == "429":
            raise PluginError("Model 'x' failed: 429 Too Many Requests.")
        question, text = self.question, self.english[self.question]
        if self.way == "nonsense":
            text = random.Random(question).choice(NONSENSE)
        return Completion(text="", data={"text": text, "language": self.language}, model="fake")


async def share_found(
    store: Path,
    questions: Sequence[tuple[str, str]],
    plugins: Mapping[str, Any],
    translator: Translator | None = None,
) -> float:
    """Return for how many questions the passage is among the ten best."""
    embedder = Static()
    settings = {"rag": {"interpreters": list(plugins), "token_budget": 0, "cache_enabled": False}}
    async with ContextRouter(
        settings,
        providers={"docs": Sqlite(path=str(store))},
        embedders={"default": embedder},
        interpreters=plugins,
    ) as router:
        right = 0
        for text, passage in questions:
            if translator is not None:
                translator.question = text
            context = await router.route(text)
            right += any(envelope.document.id == passage for envelope in context.envelopes)
    return right / len(questions)


def reading(translator: Translator) -> dict[str, Any]:
    """Return the interpreters that ask a translator."""
    seconds = 0.05 if translator.way == "hangs" else 2.0
    return {
        "language": Language(languages=["en", translator.language]),
        "understand": Understand(
            generator=translator, fill=["text"], corpus_language="en", answer_seconds=seconds
        ),
    }


async def fill(store: Path, documents: Sequence[Document]) -> None:
    embedder = Static()
    await embedder.open()
    provider = Sqlite(path=str(store))
    await provider.open()
    await provider.embedded_by(embedder.model, embedder.dimensions)
    vectors = await embedder.embed([f"{d.title}\n{d.content}" for d in documents])
    entries = [
        Entry(document=document, chunks=[document], vectors={"vector": [vector]})
        for document, vector in zip(documents, vectors, strict=True)
    ]
    await provider.upsert(entries)
    await provider.aclose()


async def main() -> bool:
    parser = argparse.ArgumentParser(description="Questions in other languages")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--languages", nargs="*", default=["de", "es", "ru"])
    parser.add_argument("--questions", type=int, default=200)
    asked = parser.parse_args()
    with gzip.open(asked.folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        passages = [json.loads(line) for line in file]
    documents = [
        Document(id=p["id"], title=p["title"].replace("_", " "), content=p["text"])
        for p in passages
        if p["id"].startswith("en-")
    ]
    lines = (asked.folder / "queries.dev.jsonl").read_text("utf-8").splitlines()
    by_id = {entry["id"]: entry["text"] for entry in map(json.loads, lines)}
    judged = [line.split("\t") for line in (asked.folder / "qrels.dev.tsv").read_text("utf-8").splitlines()]
    passage_of = {row[0]: next(c for c in row[1:] if "-p" in c) for row in judged if row[0] in by_id}
    ids = [name.removeprefix("en-") for name in by_id if name.startswith("en-")][: asked.questions]
    held = True
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "english.db"
        await fill(store, documents)
        english = [(by_id[f"en-{i}"], passage_of[f"en-{i}"]) for i in ids]
        gold = await share_found(store, english, {})
        print(f"{len(ids)} questions, among the ten best: English {gold:.3f}")
        for language in asked.languages:
            pairs = {by_id[f"{language}-{i}"]: by_id[f"en-{i}"] for i in ids}
            questions = [(by_id[f"{language}-{i}"], passage_of[f"en-{i}"]) for i in ids]
            shares = {"without": await share_found(store, questions, {})}
            for way in ("translated", "nonsense", "hangs", "429"):
                translator = Translator(pairs, language, way)
                shares[way] = await share_found(store, questions, reading(translator), translator)
            print(f"  {language}  " + "  ".join(f"{way} {share:.3f}" for way, share in shares.items()))
            failing = min(shares[way] for way in ("nonsense", "hangs", "429"))
            held = held and shares["translated"] >= gold and failing >= shares["without"]
    print("holds" if held else "MISSED")
    return held


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main()) else 1)
