"""The leg `text`: chunks that hold the words of a question, all of them first, then any of them.

The text search of a collection joins words by AND. So one request asks for all words together, and for each
by itself. Objects hold index terms, stemmed as in all stores, so a question finds the same texts as there.
"""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.builtin.providers.vertex.collection import Collection, Result
from contextrouter.builtin.providers.vertex.object_filter import Condition
from contextrouter.builtin.shared.google_cloud.request_batches import MOST
from contextrouter.model import Query
from contextrouter.text.languages import Languages, LanguageTerms
from contextrouter.text.query_syntax import FURTHEST

MOST_WORDS = 32  # of a question are asked for, the longest: rare words are long
FEWEST = 100  # candidates of a single word, so that a small limit does not change the order

_Search = tuple[str, list[Condition]]


async def search_words(
    collection: Collection,
    query: Query,
    question: LanguageTerms,
    conditions: Sequence[Condition],
    *,
    top: int,
    with_vectors: bool,
) -> list[Result]:
    """Return chunks with all words of the question, then those with some of them, best first."""
    together, single = _whole(question, conditions), _single(question, conditions)
    if not together:
        return []
    among = min(max(top, FEWEST), MOST)
    searches = [(*search, top) for search in together]
    searches += [(*search, among) for search in single] if len(single) > 1 else []
    lists = await collection.text_searches(searches, with_vectors=with_vectors, deadline=query.deadline)
    best = _merge_lists(lists[: len(together)])
    ids = {result.id for result in best}
    # Scores of single words add up. Those below may not pass what has all the words.
    lowest = min((result.score or 0.0 for result in best), default=float("inf"))
    others = [result for result in _merge_lists(lists[len(together) :]) if result.id not in ids]
    return best + [item._replace(score=min(item.score or 0.0, lowest)) for item in others]


def _whole(question: LanguageTerms, conditions: Sequence[Condition]) -> list[_Search]:
    """A search for all words together, in each language."""
    several = len(question.by_language) > 1
    searches: dict[str, set[str]] = {}
    for language, terms in question.by_language.items():
        text = " ".join(_longest(terms.terms))
        if text:
            searches.setdefault(text, set()).add(language)
    return [
        (text, [*conditions, *_stems(frozenset(languages) if several else None)])
        for text, languages in searches.items()
    ]


def _single(question: LanguageTerms, conditions: Sequence[Condition]) -> list[_Search]:
    """A search for each word, in each of its forms."""
    forms = {term: languages for word in question.words for term, languages in word.items()}
    return [(text, [*conditions, *_stems(forms.get(text))]) for text in _longest(list(forms), of_forms=True)]


def _stems(languages: Languages) -> list[Condition]:
    return [] if languages is None else [{"stems": {"$in": sorted(languages)}}]


def _longest(terms: Sequence[str], *, of_forms: bool = False) -> list[str]:
    """The longest terms, in their order. The beginning of a term counts as the term."""
    distinct = list(dict.fromkeys(terms if of_forms else (term.rstrip(FURTHEST) for term in terms)))
    chosen = set(sorted(distinct, key=len, reverse=True)[:MOST_WORDS])
    return [term.rstrip(FURTHEST) if of_forms else term for term in distinct if term in chosen]


def _merge_lists(lists: Sequence[Sequence[Result]]) -> list[Result]:
    """The results of several lists, each once with the sum of its scores, best first."""
    results: dict[str, Result] = {}
    for ranked in lists:
        for result in ranked:
            before = results.get(result.id)
            score = (result.score or 0.0) + ((before.score or 0.0) if before else 0.0)
            results[result.id] = result._replace(score=score)
    return sorted(results.values(), key=lambda result: (-(result.score or 0.0), result.id))
