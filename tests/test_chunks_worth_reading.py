"""Chunks that are worth their tokens: one title a block, no crumbs, imports with their function, no menus."""

from __future__ import annotations

import pytest

from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.builtin.transforms.quality import Quality
from contextrouter.model import Document, Envelope
from contextrouter.pipeline.assembly import assemble
from contextrouter.text.repeated_titles import without_repeats
from contextrouter.text.tokens import count

MENU = (
    "Home About us Products Pumps Valves Seals Filters Services Repair Training Spare parts Downloads Data sheets"
    " Manuals News Events Blog Careers Contact Support FAQ Login Register Cart Search Drum pumps Hand pumps Fire"
    " pumps Motors Gearboxes Bearings Tools Sale New arrivals Brands Gift cards Stores Opening hours Delivery"
    " Returns Payment Privacy Terms Imprint Water pumps Garden pumps Oil pumps Heat pumps Pressure tanks Hoses"
    " Couplings Gauges Switches Cables Controls Panels Kits Offers Account Wishlist Compare Help Newsletter Partners Press Jobs Team History Awards Catalogue Videos Forum"
)


def cut(text: str, media_type: str = "text/markdown", **keys: int) -> list[Document]:
    return Chunk(**keys).cut(Document(id="d", title="Guide", content=text, media_type=media_type))


# One title a block


@pytest.mark.case("USE-13")
@pytest.mark.parametrize(
    ("title", "path", "content", "expected"),
    [
        ("Guide", ("Guide", "Use"), "# Guide\n\n## Use\n\nPush.", (("Use",), "Push.")),
        ("Guide", ("Guide",), "# guide #\nPush.", ((), "Push.")),
        ("Guide", ("Use",), "## *Use*\n\n### Other\n\nPush.", (("Use",), "### Other\n\nPush.")),
        ("Guide", ("Guide",), "# Guide\n", ((), "# Guide\n")),
        ("Guide", (), "Guide\n\nPush.", ((), "Guide\n\nPush.")),
        ("", ("A",), "# A\n\nPush.", (("A",), "Push.")),
    ],
)
def test_a_block_does_not_repeat_its_title_and_headings(
    title: str, path: tuple[str, ...], content: str, expected: tuple[tuple[str, ...], str]
) -> None:
    remaining, text = without_repeats(title, path, content)
    assert (remaining, text.strip() if expected[1] == text.strip() else text) == expected


@pytest.mark.case("USE-13")
def test_a_chunk_that_begins_with_its_title_says_it_once() -> None:
    (first, second) = cut("# Guide\n\nIntro of the pump.\n\n## Use\n\nPush the lever.\n")
    text = assemble([Envelope(document=first), Envelope(document=second)]).text
    assert text.count("Guide") == 2  # the title of each block
    assert text.count("Use") == 1
    assert "Intro of the pump." in text


# No crumbs


def sections(*sizes: int) -> str:
    """A guide with sections of so many words."""
    return "# Guide\n\n" + "\n\n".join(f"## S{n}\n\n{'eel ' * size}" for n, size in enumerate(sizes))


def test_a_small_section_is_joined_with_its_sibling_under_the_same_heading() -> None:
    chunks = cut(sections(20, 300, 300, 20))
    assert [(chunk.path, chunk.content.count("## S")) for chunk in chunks] == [
        (("Guide",), 2),
        (("Guide",), 2),
    ]
    assert all(count(chunk.content) <= 512 for chunk in chunks)
    assert "".join(chunk.content for chunk in chunks).count("eel") == 640


def test_sections_that_are_large_enough_or_no_siblings_stay_apart() -> None:
    assert [chunk.path for chunk in cut(sections(100, 100))] == [("Guide", "S0"), ("Guide", "S1")]
    assert [chunk.path for chunk in cut("# A\n\nx\n\n# B\n\ny\n")] == [("A",), ("B",)]
    assert [chunk.path for chunk in cut("# G\n\n## A\n\nx\n\n### C\n\nz\n\n## B\n\ny\n")] == [
        ("G", "A"),
        ("G", "A", "C"),
        ("G", "B"),
    ]


# Code


@pytest.mark.case("C28")
@pytest.mark.parametrize("lines", [60, 200])
def test_imports_stay_with_the_first_function_also_where_both_are_above_the_target(lines: int) -> None:
    imports = "import os\nimport sys\nfrom pathlib import Path\n"
    body = "".join(f"    value_{n} = os.path.join(str({n}), sys.argv[0])\n" for n in range(lines))
    chunks = cut(f"{imports}\n\ndef first():\n{body}\n\ndef second():\n    return 2\n", "text/x-python")
    assert chunks[0].content.startswith(imports)
    assert "def first():" in chunks[0].content
    assert chunks[0].path == ("first",)
    assert [chunk.path for chunk in chunks[1:]][-1] == ("second",)


# Menus


@pytest.mark.case("C15")
@pytest.mark.parametrize("between", ["\n", " ", " | ", "\n\n", " · "])
async def test_a_menu_in_plain_text_is_dropped(between: str) -> None:
    assert len(MENU.split()) >= 85
    menu = MENU.replace(" ", between) if between != " " else MENU
    assert await Quality().transform(Document(id="m", content=menu)) == []


@pytest.mark.case("C15")
async def test_a_menu_above_a_text_is_not_searched_and_lists_of_other_things_are() -> None:
    prose = "The otter eats fish, and it sleeps in a holt at the bank of the river. " * 9
    (page,) = await Quality().transform(Document(id="p", content=f"{MENU}\n\n{prose}"))
    assert page.metadata["search_text"].strip() == prose.strip()
    recipe = "2 eggs\n100 g flour\nsalt\nmilk\nbutter\nsugar\nhome made jam\ncream\nvanilla\nrum\nlemon zest\nyeast"
    (kept,) = await Quality().transform(Document(id="r", content=recipe))
    assert kept.metadata["quality"] == 1.0
