"""Menus in plain text: runs of short entries that lead somewhere and say nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from contextrouter.text.analysis import atoms
from contextrouter.text.stop_words import STOP_WORDS

ENTRIES = frozenset(
    (
        "home about contact login logout register signup signin account cart basket checkout shop store "
        "products services solutions pricing blog news press events careers jobs faq help support search "
        "sitemap privacy terms imprint legal cookies newsletter subscribe follow share download "
        "downloads documentation docs resources partners customers company team community forum gallery "
        "menu categories archive archives startseite kontakt anmelden warenkorb produkte leistungen "
        "aktuelles presse karriere hilfe suche impressum datenschutz agb accueil contactez panier "
        "produits actualités connexion recherche inicio contacto productos noticias buscar carrito ayuda "
    ).split()
)
"""Words of menus, in four languages."""
FEWEST_WORDS = 12
FEWEST_ENTRIES = 3
"""Different words of menus that a run has at least."""
_ENTRIES = 0.12
"""Share of the words of a run that are words of menus, at least."""
_STOPS = 0.15
"""Share of stop words from which a run is prose."""
_LONGEST_ENTRY = 6  # words
_SEPARATORS = re.compile(r"\s*[|·•»›/–—>]\s+|\t+| {3,}")
_SENTENCE = re.compile(r"[.!?;:,。！？][\"'”’)]*\s*$|[.!?;,]\s")


def menu_lines(lines: Sequence[str]) -> set[int]:
    """Return the numbers of the lines that are menus. Blank lines within one belong to it."""
    menus: set[int] = set()
    for run in _runs(lines):
        words = [word for number in run for word in atoms(lines[number])]
        stops = sum(word in STOP_WORDS for word in words)
        entries = [word for word in words if word in ENTRIES]
        is_menu = len(set(entries)) >= FEWEST_ENTRIES and len(entries) >= _ENTRIES * len(words)
        if is_menu and len(words) >= FEWEST_WORDS and stops < _STOPS * len(words):
            menus.update(run)
    return menus


def _runs(lines: Sequence[str]) -> Iterator[list[int]]:
    run: list[int] = []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        if _is_entry(line):
            run.append(number)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _is_entry(line: str) -> bool:
    """Whether a line is an entry of a menu, several with signs between them, or many words without a
    sentence.
    """
    if _SENTENCE.search(line):
        return False
    if all(len(part.split()) <= _LONGEST_ENTRY for part in _SEPARATORS.split(line.strip())):
        return True
    words = atoms(line)
    return sum(word in STOP_WORDS for word in words) < _STOPS * len(words)
