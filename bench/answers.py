"""How often `extractive` answers: the words of the gold answer in its answer, and what cannot be answered.

    python bench/answers.py DATA [--questions N]

DATA holds the judged collections `kgpacks-faq` and `multihop-rag-500`. Every N-th part of the questions is
asked at one store in memory, by text alone, so that a run takes a minute. A gold answer "stands" in an answer
if four fifths of its content words do. Of kgpacks-faq the gold answer is the text of the relevant document,
and each question is asked a second time without that document: there it cannot be answered. Exits 1 when a
share is below its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from contextrouter import ContextRouter, Document
from contextrouter.builtin.generators.extractive import NOTHING, Extractive
from contextrouter.builtin.providers.memory import Memory
from contextrouter.contracts import Entry
from contextrouter.text.stemming import stem
from contextrouter.text.stop_words import STOP_WORDS

STANDS = 0.8  # share of the gold answer's content words
LIMITS = {"kgpacks-faq": (0.62, 0.12), "multihop-rag-500": (0.22, 0.95)}
"""Least shares: gold answers that stand, and abstentions of what cannot be answered."""
_WORD = re.compile(r"\w+")


class Asked(NamedTuple):
    """A question with its context; `gold` is "" where the context cannot answer it."""

    question: str
    gold: str
    context: str


def stems(text: str) -> set[str]:
    """The stems of the content words of a text; of a text without any, of all words."""
    words = [word for word in _WORD.findall(text.casefold())]
    return {stem(word) for word in words if word not in STOP_WORDS} or {stem(word) for word in words}


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.decode().splitlines()]


async def contexts(folder: Path, limit: int) -> list[Asked]:
    """Ask a sample of a collection's questions."""
    rows, queries = lines(folder / "corpus.jsonl.gz"), lines(folder / "queries.dev.jsonl")
    relevant: dict[str, str] = {}
    for line in (folder / "qrels.dev.tsv").read_text().splitlines()[1:]:
        query, document, *_ = line.split("\t")
        relevant.setdefault(query, document)
    texts = {row["id"]: row["text"] for row in rows}
    store = Memory()
    documents = [
        Document(id=row["id"], title=row.get("title") or "", url=row.get("url") or "", content=row["text"])
        for row in rows
    ]
    settings = {"rag": {"interpreters": [], "cache_enabled": False, "token_budget": 0}}
    asked = []
    async with ContextRouter(settings, providers={"store": store}) as router:
        await store.upsert([Entry(document=document, chunks=[document]) for document in documents])
        for query in queries[:: max(1, len(queries) // limit)]:
            question = query["text"]
            context = await router.route(question)
            if "answer" in query:
                gold = query["answer"] if query.get("answerable", True) else ""
                asked.append(Asked(question, gold, context.text))
                continue
            target = relevant[query["id"]]
            asked.append(Asked(question, texts[target], context.text))
            others = [e for e in context.envelopes if e.document.id != target]
            asked.append(Asked(question, "", "\n\n".join(
                f"### [{number}] {e.document.title} — store\n{e.document.content}" for number, e in enumerate(others, 1)
            )))  # fmt: skip
    return asked


async def measure(asked: list[Asked]) -> tuple[float, float, float, float]:
    """The share of gold answers that stand in the answer, the mean share of their words, and the shares of
    abstentions where nothing can be answered, and where something can.
    """
    generator, stand, shares = Extractive(), 0, 0.0
    abstained, wrongly, empty = 0, 0, 0
    for question, gold, context in asked:
        messages = [{"role": "system", "content": context}, {"role": "user", "content": question}]
        text = (await generator.complete(messages)).text
        if not gold:
            empty += 1
            abstained += NOTHING in text
            continue
        wrongly += NOTHING in text
        words = stems(gold)
        share = len(words & stems(text)) / len(words)
        stand, shares = stand + (share >= STANDS), shares + share
    answered = len(asked) - empty
    return stand / answered, shares / answered, abstained / empty, wrongly / answered


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--questions", type=int, default=300, help="of each collection, about")
    parser.add_argument("--keep", type=Path, help="a file that keeps the contexts for the next run")
    arguments = parser.parse_args()
    held = True
    for name, (least_stand, least_abstain) in LIMITS.items():
        kept = arguments.keep and arguments.keep.with_suffix(f".{name}.json")
        if kept and kept.exists():
            asked = [Asked(*row) for row in json.loads(kept.read_text())]
        else:
            asked = asyncio.run(contexts(arguments.data / name, arguments.questions))
            if kept:
                kept.write_text(json.dumps(asked))
        stand, mean, abstain, wrong = asyncio.run(measure(asked))
        held = held and stand >= least_stand and abstain >= least_abstain
        print(
            f"{name}: {len(asked)} questions; gold answer stands {stand:.3f} (mean share of its words"
            f" {mean:.3f}), abstains where nothing answers {abstain:.3f}, and wrongly {wrong:.3f}"
        )
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
