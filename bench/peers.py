"""LlamaIndex, LangChain and Haystack doing the same work as the router, each in an environment of its own.

    BENCH_PEERS=1 python bench/peers.py [--rounds 3] [--quick]

Each environment is made under bench/.venvs with pip, and holds one peer and this package: there the peer, the router and the floor
`safe` of router.py take turns in one process, over the same lists, and all ratios are to that floor, within a round. Peers get
documents of their own kind, built outside the timer, from retrievers that answer at once. Without BENCH_PEERS nothing is done.
Exits 1 when a limit is missed: less CPU than LangChain in every cell of at least three sources; a quarter of that of LlamaIndex
and of Haystack as geometric means.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from router import GRID, QUICK, TOP, Cell, Contestant, Lists, Ours, Row, Safe, measure, options, table

HERE = Path(__file__).resolve().parent
PEERS = {"langchain": "langchain-classic>=1.0", "llamaindex": "llama-index-core>=0.14", "haystack": "haystack-ai>=3.4"}
TIMES = 4.0
"""How much more CPU LlamaIndex and Haystack should take."""
RESULT = "RESULT "


def langchain() -> type[Contestant]:
    """EnsembleRetriever, its weighted reciprocal rank fusion, over one retriever per query and source."""
    from langchain_classic.retrievers import EnsembleRetriever
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    class Laid(BaseRetriever):
        found: Any = ()

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            return self.found

        async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            return self.found

    class LangChain(Contestant):
        name = "langchain"

        def __init__(self, cell: Cell) -> None:
            super().__init__(cell)
            self.retrievers = {(q, s): Laid() for q in range(self.queries) for s in range(self.sources)}
            self.ensemble = EnsembleRetriever(retrievers=list(self.retrievers.values()))

        def ready(self, lists: Lists) -> None:
            for key, hits in lists.items():
                self.retrievers[key].found = [
                    Document(
                        page_content=d.content, metadata={"url": d.url, "title": d.title, "snippet": d.snippet, "score": hit.score}
                    )
                    for hit in hits
                    for d in (hit.document,)
                ]

        async def answer(self) -> object:
            return (await self.ensemble.ainvoke("query 0"))[:TOP]

        def urls(self, answer: object) -> list[str]:
            return [document.metadata["url"] for document in answer]  # type: ignore[attr-defined]

    return LangChain


def llamaindex() -> type[Contestant]:
    """QueryFusionRetriever in its mode `reciprocal_rerank`; its queries are laid ready instead of asked of a model."""
    from llama_index.core.llms import MockLLM
    from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

    class Laid(BaseRetriever):
        def __init__(self) -> None:
            self.found: dict[str, list[Any]] = {}
            super().__init__()

        def _retrieve(self, query_bundle: Any) -> list[Any]:
            return self.found[query_bundle.query_str]

        async def _aretrieve(self, query_bundle: Any) -> list[Any]:
            return self.found[query_bundle.query_str]

    class Fusion(QueryFusionRetriever):
        def _get_queries(self, original_query: str) -> list[Any]:
            return [QueryBundle(f"query {q}") for q in range(1, self.num_queries)]

        async def _aget_queries(self, original_query: str) -> list[Any]:
            return self._get_queries(original_query)

    class LlamaIndex(Contestant):
        name = "llamaindex"

        def __init__(self, cell: Cell) -> None:
            super().__init__(cell)
            self.retrievers = [Laid() for _ in range(self.sources)]
            self.fusion = Fusion(
                self.retrievers, llm=MockLLM(), mode="reciprocal_rerank", similarity_top_k=TOP, num_queries=self.queries
            )

        def ready(self, lists: Lists) -> None:
            for (q, s), hits in lists.items():
                self.retrievers[s].found[self.texts[q]] = [
                    NodeWithScore(
                        node=TextNode(text=d.content, id_=d.id, metadata={"url": d.url, "title": d.title, "snippet": d.snippet}),
                        score=hit.score,
                    )
                    for hit in hits
                    for d in (hit.document,)
                ]

        async def answer(self) -> object:
            return await self.fusion.aretrieve("query 0")

        def urls(self, answer: object) -> list[str]:
            return [found.node.metadata["url"] for found in answer]  # type: ignore[attr-defined]

    return LlamaIndex


def haystack() -> type[Contestant]:
    """MultiRetriever with reciprocal rank fusion; for several queries inside MultiQueryTextRetriever, which does not fuse them."""
    from haystack import Document, component
    from haystack.components.retrievers import MultiQueryTextRetriever, MultiRetriever

    @component
    class Laid:
        def __init__(self) -> None:
            self.found: dict[str, list[Any]] = {}

        @component.output_types(documents=list[Document])
        def run(self, query: str) -> dict[str, Any]:
            return {"documents": self.found[query]}

        @component.output_types(documents=list[Document])
        async def run_async(self, query: str) -> dict[str, Any]:
            return {"documents": self.found[query]}

    class Haystack(Contestant):
        name = "haystack"

        def __init__(self, cell: Cell) -> None:
            super().__init__(cell)
            self.retrievers = [Laid() for _ in range(self.sources)]
            self.one = MultiRetriever(
                retrievers={f"s{s}": retriever for s, retriever in enumerate(self.retrievers)},
                top_k=TOP if self.queries == 1 else None, max_workers=self.sources, join_mode="reciprocal_rank_fusion",
            )  # fmt: skip
            self.many = MultiQueryTextRetriever(retriever=self.one, max_workers=self.queries) if self.queries > 1 else None

        def ready(self, lists: Lists) -> None:
            for (q, s), hits in lists.items():
                self.retrievers[s].found[self.texts[q]] = [
                    Document(content=d.content, meta={"url": d.url, "title": d.title, "snippet": d.snippet}, score=hit.score)
                    for hit in hits
                    for d in (hit.document,)
                ]

        async def answer(self) -> object:
            if self.many is not None:
                return (await self.many.run_async(queries=self.texts))["documents"][:TOP]
            return (await self.one.run_async(query=self.texts[0]))["documents"]

        def urls(self, answer: object) -> list[str]:
            return [document.meta["url"] for document in answer]  # type: ignore[attr-defined]

    return Haystack


def environment(name: str) -> Path:
    """Make the environment of a peer where there is none; return its interpreter."""
    folder = HERE / ".venvs" / name
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        print(f"making {folder.relative_to(HERE.parent)} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, PEERS[name], "--editable", str(HERE.parent)], check=True)
        (folder / "made").touch()
    return python


def measured(name: str, arguments: list[str]) -> list[Row]:
    """What the peer's own process found."""
    command = [str(environment(name)), str(HERE / "peers.py"), "--json", *arguments]
    quiet = {**os.environ, "BENCH_PEER": name, "PYTHONWARNINGS": "ignore", "HAYSTACK_TELEMETRY_ENABLED": "False"}
    done = subprocess.run(command, check=True, env=quiet, stdout=subprocess.PIPE, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith(RESULT))
    return [Row(**{**row, "cell": tuple(row["cell"])}) for row in json.loads(line.removeprefix(RESULT))]


def verdict(name: str, rows: list[Row]) -> bool:
    """Print how the router compares with a peer; whether the limit holds."""
    times = {row.cell: row.ratios[name] / row.ratios["router"] for row in rows}
    mean = statistics.geometric_mean(times.values())
    low, high = min(times.values()), max(times.values())
    few = {row.cell: row.same[name] for row in rows if row.same[name] < min(TOP, row.same["safe"])}
    print(f"{name}: {mean:.2f} x the CPU of the router as geometric mean ({low:.2f} to {high:.2f}); "
          f"other documents than by hand: {f'in {len(few)} cells' if few else 'nowhere'}")  # fmt: skip
    if name != "langchain":
        return mean >= TIMES
    dearer = [" x ".join(map(str, cell)) for cell, value in times.items() if cell[1] >= 3 and value <= 1]
    print(f"langchain: cells of at least 3 sources in which the router takes no less: {', '.join(dearer) or 'none'}")
    return not dearer


def main() -> int:
    given = options(3)
    if peer := os.environ.get("BENCH_PEER"):
        kind = {"langchain": langchain, "llamaindex": llamaindex, "haystack": haystack}[peer]()
        rows = asyncio.run(measure(QUICK if given.quick else GRID, given.rounds, [Safe, Ours, kind]))
        print(RESULT + json.dumps([vars(row) for row in rows]))
        return 0
    if not os.environ.get("BENCH_PEERS"):
        print("peers are measured with BENCH_PEERS=1")
        return 0
    arguments = ["--rounds", str(given.rounds), *(["--quick"] if given.quick else [])]
    held = []
    for name in PEERS:
        rows = measured(name, arguments)
        print(f"\n{table(rows)}", flush=True)
        held.append(verdict(name, rows))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
