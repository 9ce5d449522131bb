"""Counting tokens: exact by the shipped tokenizer, estimated without it; never an error, never a text counted
as nothing.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter.text import tokens

ANY_TEXT = st.text(st.characters(), max_size=300)  # lone surrogates too

ESTIMATE = """
import sys
sys.modules["tokenizers"] = None
from contextrouter.text import tokens
assert not tokens.exact()
"""


@pytest.fixture(params=["exact", "estimate"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of counting."""
    if request.param == "estimate":
        monkeypatch.setattr(tokens, "_loaded", [None])
    return str(request.param)


def test_the_shipped_tokenizer_is_used_when_it_can_be() -> None:
    assert tokens.exact()


def test_word_pieces_are_counted_as_the_vocabulary_cuts_them() -> None:
    # "tokenization" is "token" + "##ization" in the vocabulary of all-MiniLM-L6-v2; punctuation stands alone.
    assert tokens.spans("Tokenization, too!") == [(0, 5), (5, 12), (12, 13), (14, 17), (17, 18)]
    assert tokens.count("Tokenization, too!") == 5


@pytest.mark.case("CHK-22")
def test_special_token_text_is_text(way: str) -> None:
    for text in ("<|endoftext|> docs", "[CLS]", "[UNK] [PAD]", "</s>"):
        found = tokens.spans(text)
        assert "".join(text[a:b] for a, b in found) == text.replace(" ", "")
        assert tokens.count(text) == len(found) > 1


@pytest.mark.case("CHK-13")
def test_a_chinese_page_is_counted_by_characters(way: str) -> None:
    assert tokens.count("学" * 5000) == 5000


def test_nothing_is_cut_off_at_512_tokens(way: str) -> None:
    assert tokens.count("word " * 3000) == 3000


def test_unknown_scripts_and_emoji_count_one_per_character() -> None:
    assert tokens.count("😀" * 40) == 40
    assert tokens.spans("ภาษาไทย") == [(i, i + 1) for i in range(7)]


def test_a_run_without_end_is_many_tokens() -> None:
    assert tokens.count("abcdefghij" * 100) > 250


def test_lone_surrogates_and_control_characters_do_not_raise(way: str) -> None:
    assert tokens.count("a \ud800 b") == 3
    assert tokens.count("\x00 \ufffd") in (0, 1, 2)


def test_blank_text_has_no_tokens(way: str) -> None:
    assert tokens.count(" \n\t ") == 0
    assert tokens.spans("") == []
    assert tokens.truncate("", 5) == ""


def test_the_estimate_counts_a_run_of_letters_by_fours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_loaded", [None])
    # "internationalization" is 20 letters: 5; "a_b" is 3; "学习" is 2; "…" is 1.
    assert tokens.count("internationalization a_b 学习…") == 5 + 3 + 2 + 1


def test_without_tokenizers_the_estimate_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ESTIMATE + "assert tokens.count('one two') == 2"], check=False
    )
    assert done.returncode == 0


def test_importing_the_module_loads_no_tokenizer() -> None:
    code = "import sys, contextrouter.text.tokens; assert 'tokenizers' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_tokenizer_is_loaded_once_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    load = tokens._load

    def slow() -> object:
        loads.append(1)
        time.sleep(0.05)
        return load()

    monkeypatch.setattr(tokens, "_loaded", [])
    monkeypatch.setattr(tokens, "_load", slow)
    threads = [threading.Thread(target=tokens.count, args=("text",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1


@given(ANY_TEXT)
def test_spans_are_in_order_inside_the_text_and_as_many_as_counted(text: str) -> None:
    found = tokens.spans(text)
    assert len(found) == tokens.count(text)
    assert all(0 <= a < b <= len(text) for a, b in found)
    assert found == sorted(found)
    assert tokens.starts(text, 7) == [7 + start for start, _ in found]


@given(ANY_TEXT, st.integers(0, 60))
def test_truncate_keeps_a_beginning_of_at_most_limit_tokens(text: str, limit: int) -> None:
    cut = tokens.truncate(text, limit)
    assert text.startswith(cut)
    assert tokens.count(cut) <= limit
    if limit and tokens.count(text) <= limit:
        assert cut == text


def test_truncate_ends_with_the_last_token_that_fits(way: str) -> None:
    assert tokens.truncate("one two six four", 3) == "one two six"
    assert tokens.truncate("word " * 10_000, 2) == "word word"


def test_truncate_looks_at_no_more_than_it_needs() -> None:
    began = time.process_time()
    assert tokens.count(tokens.truncate("some words, " * 1_000_000, 100)) == 100
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "text", ["The quick brown fox. " * 500_000, "x" * 10_000_000, "é" * 2_000_000], ids=["prose", "run", "é"]
)
def test_ten_megabytes_are_counted_in_linear_time(text: str) -> None:
    began = time.process_time()
    assert tokens.count(text) > 100_000
    assert time.process_time() - began < 20
