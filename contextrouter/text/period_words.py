"""Words of time: names of months and weekdays, number words, and German and French words in English."""

from __future__ import annotations

import re

MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
COUNTS = {
    "a": 1,
    "an": 1,
    "one": 1,
    "two": 2,
    "couple of": 2,
    "a couple of": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
}
ORDINALS = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4}

_GERMAN = re.compile(
    r"\b(?:der|das|wer|wann|wie|welche\w*|ist|wurden?|im|und|letzte\w?|seit|zwischen|gestern|heute|nicht|ich|wir"
    r"|tagen|wochen?|monate?n?|jahre?n?|märz|januar|februar|juni|juli|oktober|dezember)\b"
)
_FRENCH = re.compile(
    r"\b(?:les|des|qui|quoi|quand|quels?|quelles?|est|cette|derni(?:er|ère)s?|depuis|entre|semaines?|mois|années?"
    r"|jours|aujourd['’]hui|une|dans|pendant|janvier|février|avril|juin|juillet|août|septembre|octobre)\b"
)
_N = r"(\d{1,6}|\w+)"
# Each expression of the language, and English for it; the earlier ones are read first.
_FROM_GERMAN = (
    (rf"vor {_N} (tag|woche|monat|jahr)(e|en|n)?", r"\1 \2 ago"),
    (r"vorletzte[nrsm]? (woche|monat|jahr)", r"\1 before last"),
    (r"heute (morgen|abend|früh)", "today"),
    (r"(\d{3}0)er(?: jahren?)?", r"\1s"),
    ("vorgestern", "day before yesterday"),
    ("(letzt|vergangen|vorig)e[nrsm]?", "last"),
    ("diese[nrsm]?", "this"),
    ("nächste[nrsm]?", "next"),
    ("heute", "today"),
    ("gestern", "yesterday"),
    ("wochenendes?", "weekend"),
    ("tage?n?", "day"),
    ("kalenderwoche", "calendar week"),
    ("wochen?", "week"),
    ("monate?[ns]?", "month"),
    ("jahre?[ns]?", "year"),
    ("quartale?[ns]?", "quarter"),
    ("seit", "since"),
    ("bis", "until"),
    ("vor", "before"),
    ("nach", "after"),
    ("zwischen", "between"),
    ("von|vom", "from"),
    ("und", "and"),
    ("im|während", "in"),
    ("am", "on"),
    ("nicht", "not"),
    ("außer", "except"),
    ("der|die|das|den|dem|des", "the"),
    ("frühling|frühjahr", "spring"),
    ("sommer", "summer"),
    ("herbst", "autumn"),
    ("ein(?:e[nmr]?)?", "one"),
    ("zwei", "two"),
    ("drei", "three"),
    ("vier", "four"),
    ("fünf", "five"),
    ("sechs", "six"),
    ("sieben", "seven"),
    ("acht", "eight"),
    ("neun", "nine"),
    ("zehn", "ten"),
    ("elf", "eleven"),
    ("zwölf", "twelve"),
    ("januar|jänner", "january"),
    ("februar", "february"),
    ("märz", "march"),
    ("mai", "may"),
    ("juni", "june"),
    ("juli", "july"),
    ("oktober", "october"),
    ("dezember", "december"),
    ("montag", "monday"),
    ("dienstag", "tuesday"),
    ("mittwoch", "wednesday"),
    ("donnerstag", "thursday"),
    ("freitag", "friday"),
    ("samstag|sonnabend", "saturday"),
    ("sonntag", "sunday"),
)
_FROM_FRENCH = (
    (rf"il y a {_N} (jour|semaine|mois|an|année)s?", r"\1 \2 ago"),
    (rf"{_N} derni(?:er|ère)s (jour|semaine|mois|an|année)s?", r"last \1 \2"),
    (r"(semaine|mois|trimestre|année|an|week-end|été|hiver) (?:derni(?:er|ère)|passée?)", r"last \1"),
    (r"(semaine|mois|trimestre|année|an|week-end) prochaine?", r"next \1"),
    (r"(\w+)di dernier", r"last \1di"),
    (r"(?:ce|cet|cette) (semaine|mois|trimestre|année|week-end)", r"this \1"),
    ("avant-hier", "day before yesterday"),
    ("aujourd['’]hui", "today"),
    ("hier", "yesterday"),
    ("week-end", "weekend"),
    ("jours?", "day"),
    ("semaines?", "week"),
    ("mois", "month"),
    ("années?|ans?", "year"),
    ("trimestres?", "quarter"),
    ("depuis", "since"),
    ("avant", "before"),
    ("après", "after"),
    ("jusqu['’](?:à|en|au)", "until"),
    ("entre", "between"),
    ("et", "and"),
    ("en|dans|pendant", "in"),
    ("pas", "not"),
    ("sauf", "except"),
    ("l['’]", "the "),
    ("les?|la", "the"),
    ("printemps", "spring"),
    ("été", "summer"),
    ("automne", "autumn"),
    ("hiver", "winter"),
    ("une?", "one"),
    ("deux", "two"),
    ("trois", "three"),
    ("quatre", "four"),
    ("cinq", "five"),
    ("sept", "seven"),
    ("huit", "eight"),
    ("neuf", "nine"),
    ("dix", "ten"),
    ("janvier", "january"),
    ("février", "february"),
    ("mars", "march"),
    ("avril", "april"),
    ("mai", "may"),
    ("juin", "june"),
    ("juillet", "july"),
    ("août", "august"),
    ("septembre", "september"),
    ("octobre", "october"),
    ("novembre", "november"),
    ("décembre", "december"),
    ("lundi", "monday"),
    ("mardi", "tuesday"),
    ("mercredi", "wednesday"),
    ("jeudi", "thursday"),
    ("vendredi", "friday"),
    ("samedi", "saturday"),
    ("dimanche", "sunday"),
)


def in_english(text: str) -> str | None:
    """Return a German or French question, in small letters, with its words of time in English; None for any
    other.
    """
    low = text.lower()
    german, french = len(_GERMAN.findall(low)), len(_FRENCH.findall(low))
    if not german and not french:
        return None
    for words, english in _FROM_GERMAN if german >= french else _FROM_FRENCH:
        low = re.sub(rf"\b(?:{words})\b", english, low)
    return re.sub(r"\s+", " ", low)


def to_count(word: str) -> int:
    """Return the number that digits or a number word say."""
    return int(word) if word.isdecimal() else COUNTS[word]
