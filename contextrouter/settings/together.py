"""What no single key shows: names that must exist, be unique, and fit together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from zoneinfo import ZoneInfo

from contextrouter import schema
from contextrouter.settings.reading import Reading
from contextrouter.settings.values import TABLES, Instance, Settings


class Together:
    """The checks over the settings as a whole."""

    def __init__(self, reading: Reading, settings: Settings, declared: Mapping[str, Collection[str]]) -> None:
        self.declared = {kind: {*names, *settings.instances(kind)} for kind, names in declared.items()}
        self.settings = settings
        self.problem = reading.problem
        self.warn = reading.warnings.append

    def run(self) -> None:
        self._names()
        self._references()
        self._routes()
        self._jobs()
        try:
            ZoneInfo(self.settings.rag.timezone)
        except (KeyError, ValueError, OSError):
            self.problem(
                ("rag", "timezone"), f"{self.settings.rag.timezone!r} is not a time zone. Use a name such as 'Europe/Berlin'."
            )

    def _names(self) -> None:
        seen: dict[str, str] = {}
        for table in ("providers", "connectors", "facts"):
            for name, instance in self.settings.instances(TABLES[table]).items():
                if name in seen:
                    self.problem(
                        (table, name),
                        f"source name {name!r} is also used in [{seen[name]}.{name}]; names are unique over all sources.",
                    )
                seen[name] = table
                self._legs(table, name, instance)
        for kind, listed in (("interpreter", self.settings.rag.interpreters), ("stage", self.settings.rag.stages)):
            used = {*listed}.union(*(r.stages or () for r in self.settings.routes.values()) if kind == "stage" else ())
            for name in self.settings.instances(kind):
                if name not in used:
                    self.warn(f"{kind} {name!r} is defined and does not run: list it in [rag] {kind}s.")

    def _legs(self, table: str, name: str, instance: Instance) -> None:
        legs = instance.keys.legs
        if legs is not None and set(legs) <= {"text"} and not self.settings.rag.enable_fts:
            self.problem((table, name, "legs"), f"legs = {list(legs)!r} leaves nothing to search while [rag] enable_fts = false.")

    def _references(self) -> None:
        for table, kind in TABLES.items():
            for name, instance in self.settings.instances(kind).items():
                for option, other in instance.references.items():
                    target = instance.options[option]
                    have = self.declared[other]
                    if target not in have and not (other == "embedder" and target == "default"):
                        known = ", ".join(sorted(have)) or "none"
                        self.problem((table, name, option), f"{target!r} names no {other}. Defined {other}s: {known}.")

    def _routes(self) -> None:
        sources = self.declared["provider"] | self.declared["connector"] | self.declared["fact"]
        for name, route in self.settings.routes.items():
            for source in route.sources or ():
                if source not in sources:
                    close = schema.nearest(source, sources)
                    hint = f" Did you mean {close!r}?" if close else ""
                    self.problem(
                        ("routes", name, "sources"), f"{source!r} names no source.{hint} Defined: {', '.join(sorted(sources))}."
                    )
            if route.fallback is not None and route.fallback != "default" and route.fallback not in self.settings.routes:
                self.problem(
                    ("routes", name, "fallback"),
                    f"{route.fallback!r} names no route. Defined: {', '.join(self.settings.routes)}.",
                )

    def _jobs(self) -> None:
        for name, job in self.settings.ingest.items():
            if job.to not in self.declared["provider"]:
                known = ", ".join(sorted(self.declared["provider"])) or "none"
                self.problem(("ingest", name, "to"), f"{job.to!r} names no provider. Defined providers: {known}.")
