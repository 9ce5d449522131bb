"""Stop words of English: words so frequent that they say nothing of what a text is about."""

from __future__ import annotations

STOP_WORDS = frozenset(
    (
        "a about am an and any are as at be been being but by can could did do does for from had has have "
        "he her him his how i if in into is it its just may me might must my no nor not of on or our shall "
        "she should so some such than that the their them then there these they this those to us was we "
        "were what when where which while who whom whose why will with would you your"
    ).split()
)
"""What a search scores only where a question has no other word."""

REQUEST_WORDS = STOP_WORDS | frozenset(
    (
        "all also because did done explain find get give list many most much out please same say says show "
        "talk talks tell use used using versus vs"
    ).split()
)
"""Words of a question that say how it asks, not what about."""

WEAK_WORDS = REQUEST_WORDS | frozenset(
    (
        "above after again against all also although always among another around away back because before "
        "below between both came cannot come doing done down during each either else enough etc even ever "
        "every few first further get gets give given go goes got having here hers herself himself however "
        "instead itself keep last least less let like made make makes many maybe more most much myself need "
        "neither never new nothing now off often once one only onto other others otherwise ours ourselves "
        "out over own per perhaps put quite rather really same second see seen several since still take "
        "theirs themselves therefore though through thus together too toward two under until up upon use "
        "used uses using very via way well whether within without yes yet yours yourself yourselves"
    ).split()
)
"""Words at which a key phrase ends: "several other results" names nothing, though a question may have it."""
