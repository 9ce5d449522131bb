"""How good the ranking is: whether the right document comes first, whether sources go well together, and
whether the knobs act.

    python bench/quality.py [all | PART... | SET...] [--data FOLDER] [--build FOLDER] [--without-minilm]

PART is `names`, `single`, `several`, `mixed`, `knobs` or `languages`; SET is a folder of a judged collection (see
`judged.py`) inside --data, by default `$BENCH_DATA`. federated-6 and kgpacks-faq are measured with all their
sources, every other set as one source. `names` makes its own texts and needs no data. Stores and vectors are
kept under --build and used again; the runs (TREC format) are kept there too, and made anew every time.
Metrics are those of `ir-measures`; a difference has a 95 % interval of paired bootstrap over the questions.
Exits 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from time import perf_counter

from quality_knobs import knobs
from quality_languages import languages
from quality_names import names
from quality_several import LEAST as SEVERAL
from quality_several import mixed, several
from quality_single import TEN, single

BUILD = Path(__file__).resolve().parent.parent / "build" / "quality"
PARTS = ("names", "single", "several", "mixed", "knobs", "languages")
NEEDS = {
    "names": (),
    "single": TEN,
    "several": tuple(SEVERAL),
    "mixed": ("federated-6",),
    "knobs": ("federated-6",),
    "languages": ("xquad",),
}


async def measure(part: str, sets: list[str], asked: argparse.Namespace) -> bool:
    """Run one part, for `single` and `several` over these sets; whether all its limits hold."""
    data, build, minilm = asked.data, asked.build, not asked.without_minilm
    if part == "names":
        return await names(build, minilm=minilm)
    if part == "single":
        return await single(data, build, sets, minilm=minilm)
    if part == "several":
        return all([await several(data, build, name, minilm=minilm) for name in sets])
    if part == "languages":
        return await languages(data, build)
    if part == "mixed" and not minilm:
        print("\nmixed: left out, for it needs minilm")
        return True
    return await (mixed(data, build) if part == "mixed" else knobs(data, build, minilm=minilm))


def chosen(words: list[str]) -> dict[str, list[str]]:
    """Part -> its sets: those named, or all of a part that is named itself."""
    words = [*PARTS, *words] if "all" in words else words
    parts = {part: list(NEEDS[part]) for part in PARTS if part in words}
    for word in words:
        if word not in (*PARTS, "all"):
            sets = parts.setdefault("several" if word in SEVERAL else "single", [])
            sets += [word] if word not in sets else []
    return parts


async def main() -> int:
    parser = argparse.ArgumentParser(description="The quality of ranking")
    parser.add_argument("asked", nargs="*", default=["all"], metavar="all | PART | SET")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("BENCH_DATA", ".")))
    parser.add_argument("--build", type=Path, default=BUILD)
    parser.add_argument("--without-minilm", action="store_true")
    asked = parser.parse_args()
    parts = chosen(asked.asked)
    for name in {name for sets in parts.values() for name in sets}:
        if not (asked.data / name).is_dir():
            print(
                f"{asked.data / name} is no folder. Name the folder of the collections: --data FOLDER, or"
                " BENCH_DATA=FOLDER."
            )
            return 2
    held: dict[str, bool] = {}
    took: dict[str, float] = {}
    for part, sets in parts.items():
        started = perf_counter()
        held[part] = await measure(part, sets, asked)
        took[part] = perf_counter() - started
    print()
    for part, good in held.items():
        print(f"  {part:<10}{'holds' if good else 'MISSED':<8}{took[part]:7.0f} s")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
