"""Conformance suites: a test class per kind of plugin, with a test method per law, for pytest.

    class TestMine(ConnectorSuite):
        plugin = Mine

Any runner that collects `test_` methods will do. The plugin comes from its `example()`, unless the suite
defines `make()`. The test of a law that does not apply, or from which the plugin deviates, is
skipped with the reason.
"""

from __future__ import annotations

import inspect
import unittest
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from contextrouter.contracts import Plugin
from contextrouter.testing.kit import Finding, Law
from contextrouter.testing.laws import LAWS
from contextrouter.testing.messages import Broken
from contextrouter.testing.subject import Subject
from contextrouter.testing.verdict import broken_gate, find_law, judge, reason_of, subject_of


class Suite:
    """The base of all suites. `plugin` is the class under test.

    The instance of `make()` has answers to `questions`, and takes vectors of the length `dimensions`.
    """

    plugin: ClassVar[type[Plugin]]
    questions: ClassVar[Sequence[str]] = ()
    dimensions: ClassVar[int] = 16

    def make(self) -> Plugin:
        """Make an instance that is not open: the example of the class."""
        return self.plugin.example()

    def subject(self) -> Subject:
        """Return the plugin under test, as the laws take it."""
        if not hasattr(type(self), "plugin"):
            raise TypeError(f"{type(self).__name__} names no plugin; write `plugin = TheClass` in it.")
        deviations: dict[str, str] = getattr(type(self), "deviations", {})
        return subject_of(
            self.plugin,
            self.make,
            questions=self.questions,
            dimensions=self.dimensions,
            deviations=deviations,
        )


def _test(law: Law) -> Callable[[Any], None]:
    def test(self: Suite) -> None:
        subject = self.subject()
        closed = None if law.gate else _broken_gate(type(self), subject)
        if closed is not None and law.name not in subject.deviations:
            raise unittest.SkipTest(f"not applicable: {reason_of(closed)}")
        finding = judge(subject, find_law(subject.cls, law.name))
        if finding.status == "broken":
            raise Broken(f"{subject.cls.__name__}: {finding.says} But {finding.why}.")
        if finding.status != "ok":
            raise unittest.SkipTest(f"{finding.status}: {finding.why}")

    test.__name__ = test.__qualname__ = f"test_{law.name}"
    test.__doc__ = law.says
    return test


_gates: WeakKeyDictionary[type[Suite], Finding | None] = WeakKeyDictionary()


def _broken_gate(suite: type[Suite], subject: Subject) -> Finding | None:
    """Return the broken gate of a suite's plugin. Its own test reports it; the other tests are skipped."""
    if suite not in _gates:
        _gates[suite] = broken_gate(subject)
    return _gates[suite]


def _fill(kind: str, suite: type[Suite]) -> None:
    for law in LAWS[kind]:
        setattr(suite, f"test_{law.name}", _test(law))


class SourceSuite(Suite):
    """The laws of sources."""


class ProviderSuite(SourceSuite):
    """The laws of providers; those of stores apply where the provider can be filled."""


class ConnectorSuite(SourceSuite):
    """The laws of connectors."""


class FactSourceSuite(Suite):
    """The laws of fact sources."""


class InterpreterSuite(Suite):
    """The laws of interpreters."""


class StageSuite(Suite):
    """The laws of ranking stages."""


class RerankerSuite(StageSuite):
    """The laws of rerankers."""


class EmbedderSuite(Suite):
    """The laws of embedders."""


class TransformSuite(Suite):
    """The laws of transforms."""


class GeneratorSuite(Suite):
    """The laws of generators."""


SUITES: dict[str, type[Suite]] = {
    "provider": ProviderSuite,
    "connector": ConnectorSuite,
    "fact": FactSourceSuite,
    "interpreter": InterpreterSuite,
    "stage": StageSuite,
    "reranker": RerankerSuite,
    "embedder": EmbedderSuite,
    "transform": TransformSuite,
    "generator": GeneratorSuite,
}
"""Kind -> its suite."""

for _kind, _suite in SUITES.items():
    _fill(_kind, _suite)
_fill("connector", SourceSuite)
assert all(inspect.getdoc(suite) for suite in SUITES.values())
