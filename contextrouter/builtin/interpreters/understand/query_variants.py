"""Query variants: which wordings of a question, made by a model, may be searched. Pure functions.

A variant keeps what must not be paraphrased: phrases in quotation marks, identifiers and numbers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from contextrouter.text.analysis import analyse, has_unspaced
from contextrouter.text.prompt_injection import clean
from contextrouter.text.query_syntax import drop_exclusions, parse
from contextrouter.text.scripts import script_of

_LIST_MARK = re.compile(
    r"^\s*(?:[-*•]|\(?\d{1,2}[.)]|(?:query|question|alternative|variant)\s*\d*\s*:)\s+", re.I
)
_EDGES = ".,;:!?¿¡\"'“”„‘’«»()[]{}<>，。？！、；：「」『』（）؟،؛।"
_IDENTIFIER = re.compile(r"\d|[_@#\\]|//|^/|\w/\w+/\w|\w::?\w|\w\w\.\w|[a-z][A-Z]")
_ASCII = re.compile("[!-~]+")
_NUMBER = re.compile(r"(\d+(?:[.,:/]\d+)*)[^\W\d_]*\Z")  # with an ending: 15th, 1990er, 90-х
_THOUSANDS = re.compile(r"(?<=\d)[.,'’\u00a0\u202f ](?=\d{3}(?!\d))")
_COMMA = re.compile(r"(?<=\d),(?=\d)")
_NEAR = 0.9  # share of common words from which two queries are near-duplicates


def exact_tokens(question: str) -> list[str]:
    """Return the identifiers and numbers of a question: codes, paths, names of functions, versions."""
    runs = drop_exclusions(question).split()
    if has_unspaced(question):  # there, words and codes stand side by side
        runs = [run for text in runs for run in _ASCII.findall(text)]
    tokens = (token.strip(_EDGES) for token in runs)
    return list(dict.fromkeys(token for token in tokens if token and _IDENTIFIER.search(token)))


def choose_variants(
    texts: Sequence[str], question: str, *, limit: int, longest: int, translated: bool, notes: list[str]
) -> list[str]:
    """Return at most `limit` variants that may be searched beside the question; `notes` gets the others."""
    chosen: list[str] = []
    terms = [set(analyse(question))]
    for text in texts:
        variant, problem = wording(text, question, longest=longest, translated=translated)
        words = set(analyse(variant))
        if not problem and (len(chosen) == limit or any(_is_near(words, before) for before in terms)):
            problem = "says the same as another" if len(chosen) < limit else "is one too many"
        if problem:
            notes.append(f"queries: {text[:60]!r} {problem}")
        else:
            chosen.append(variant)
            terms.append(words)
    return chosen


def wording(text: str, question: str, *, longest: int, translated: bool) -> tuple[str, str]:
    """Return a wording as it may be searched, and "", or why it may not.

    It is one line of at most `longest` characters. A translation may have other words in quotation marks and
    another script.
    """
    line = _LIST_MARK.sub("", " ".join(clean(text)[0].split()))
    if len(line) > 1 and line[0] == line[-1] == '"' and line.count('"') == 2 and '"' not in question:
        line = line[1:-1].strip()
    if len(line) > longest:
        line = line[:longest].rsplit(" ", 1)[0]
    if not analyse(line):
        return line, "has no words"
    occurs = _occurs_in_translation if translated else _occurs
    lacking = [token for token in exact_tokens(question) if not occurs(token, line)]
    if lacking:
        return line, f"lacks {lacking[0]!r}"
    if translated and _has_letters(question) and not _has_letters(line):
        return line, "has no letters"
    wanted, parsed = parse(question), parse(line)
    if set(parsed.excluded) - set(wanted.excluded):
        return line, "excludes words"
    if translated:
        return line.replace('"', " ").strip(), ""
    for group in wanted.required:
        present = [phrase for phrase in group if _occurs(phrase, line)]
        if not present:
            return line, f"lacks the phrase {group[0]!r}"
        line = line if group in parse(line).required else _quote(present[0], line)
    if set(parse(line).required) - set(wanted.required):
        line = line.replace('"', " ") if not wanted.required else line
    if _script(line) != _script(question):
        return line, "is in another script than the question"
    return " ".join(line.split()), ""


def _occurs(token: str, text: str) -> bool:
    """Whether a token stands in a text, and is no part of a longer word or number."""
    return re.search(rf"(?<![0-9A-Za-z_]){re.escape(token)}(?![0-9A-Za-z_])", text, re.I) is not None


def _occurs_in_translation(token: str, text: str) -> bool:
    """Whether an identifier stands in a translation as it is, or a number with another ending or separators:
    "15." as "15th", "24-Yard-Line" as "24-yard line", "1.000" as "1,000".
    """
    if _occurs(token, text):
        return True
    words = [part for part in re.split("[-–]", _with_plain_digits(token)) if part]
    numbers = [match[1] for part in words if (match := _NUMBER.match(part))]
    others = [part for part in words if not _NUMBER.match(part)]
    if not numbers or any(part.isupper() or _IDENTIFIER.search(part) for part in others):
        return False  # a code, such as ABC-123
    plain = _plain_numbers(_with_plain_digits(text))
    return all(re.search(rf"(?<!\d){re.escape(_plain_numbers(n))}(?!\d)", plain) for n in numbers)


def _with_plain_digits(text: str) -> str:
    """Return a text with the digits of every script as 0 to 9."""
    return "".join([str(unicodedata.decimal(c)) if not c.isascii() and c.isdecimal() else c for c in text])


def _plain_numbers(text: str) -> str:
    """Return a text without separators of thousands, and with decimal points."""
    return _COMMA.sub(".", _THOUSANDS.sub("", text))


def _has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))


def _quote(phrase: str, text: str) -> str:
    return re.sub(rf'(?<![\w"]){re.escape(phrase)}(?![\w"])', f'"{phrase}"', text, count=1, flags=re.I)


def _is_near(words: set[str], others: set[str]) -> bool:
    return bool(words) and len(words & others) >= _NEAR * len(words | others)


def _script(text: str) -> str:
    """Return the script of most letters of a text; Chinese and Japanese ones count as one."""
    counts: dict[str, int] = {}
    for script in _scripts(text):
        counts[script] = counts.get(script, 0) + 1
    return max(counts, key=lambda script: counts[script], default="")


def _scripts(text: str) -> Iterator[str]:
    for letter in text:
        if letter.isalpha():
            script = script_of(letter)
            yield "CJK" if script in ("HIRAGANA", "KATAKANA") else script
