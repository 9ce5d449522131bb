"""Test support for plugins: builders, fakes and the conformance kit.

Builders (`doc`, `hit`, `query`, …) make model objects from few arguments. Fakes (`Fixed`, `Facts`, `Hashing`,
…) are plugins that obey their contracts. The conformance kit checks a plugin by the laws of its kind: as a
suite of tests (`ConnectorSuite`, …), or as a `verdict`. `deviates` overrides a law, with a reason.
"""

from contextrouter.filters import admits
from contextrouter.testing.builders import (
    NOW,
    doc,
    embedding,
    entry,
    envelope,
    fact,
    hit,
    hits,
    intent,
    interpreter_context,
    query,
    ranked,
    stage_context,
)
from contextrouter.testing.fakes import (
    Adding,
    Echo,
    Facts,
    Fixed,
    Hashing,
    Legs,
    Lines,
    Ones,
    Overlap,
    Raising,
    Reversing,
)
from contextrouter.testing.kinds import deviates, kind_of
from contextrouter.testing.kit import Finding, Law, NotApplicable
from contextrouter.testing.laws import LAWS
from contextrouter.testing.messages import Broken
from contextrouter.testing.subject import Subject
from contextrouter.testing.suites import (
    SUITES,
    ConnectorSuite,
    EmbedderSuite,
    FactSourceSuite,
    GeneratorSuite,
    InterpreterSuite,
    ProviderSuite,
    RerankerSuite,
    SourceSuite,
    StageSuite,
    Suite,
    TransformSuite,
)
from contextrouter.testing.verdict import Verdict, judge, laws_of, subject_of, verdict

__all__ = [
    "LAWS",
    "NOW",
    "SUITES",
    "Adding",
    "Broken",
    "ConnectorSuite",
    "Echo",
    "EmbedderSuite",
    "FactSourceSuite",
    "Facts",
    "Finding",
    "Fixed",
    "GeneratorSuite",
    "Hashing",
    "InterpreterSuite",
    "Law",
    "Legs",
    "Lines",
    "NotApplicable",
    "Ones",
    "Overlap",
    "ProviderSuite",
    "Raising",
    "RerankerSuite",
    "Reversing",
    "SourceSuite",
    "StageSuite",
    "Subject",
    "Suite",
    "TransformSuite",
    "Verdict",
    "admits",
    "deviates",
    "doc",
    "embedding",
    "entry",
    "envelope",
    "fact",
    "hit",
    "hits",
    "intent",
    "interpreter_context",
    "judge",
    "kind_of",
    "laws_of",
    "query",
    "ranked",
    "stage_context",
    "subject_of",
    "verdict",
]
