"""What no single key shows: names that must exist, be unique, and fit together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from zoneinfo import ZoneInfo

from contextrouter.settings.reading import Reading
from contextrouter.settings.suggestions import nearest
from contextrouter.settings.values import CALIBRATED, TABLES, Instance, Settings


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
        self._lists()
        self._weights()
        self._providers()
        self._keys()
        self._chat()
        try:
            ZoneInfo(self.settings.rag.timezone)
        except (KeyError, ValueError, OSError):
            self.problem(
                ("rag", "timezone"),
                f"{self.settings.rag.timezone!r} is not a time zone. Use a name such as 'Europe/Berlin'.",
            )

    def _names(self) -> None:
        seen: dict[str, str] = {}
        for table in ("providers", "connectors", "facts"):
            for name, instance in self.settings.instances(TABLES[table]).items():
                if name in seen:
                    self.problem(
                        (table, name),
                        f"source name {name!r} is also used in [{seen[name]}.{name}]; names are unique over"
                        " all sources.",
                    )
                seen[name] = table
                if name == CALIBRATED:
                    self.problem(
                        (table, name),
                        f"{name!r} is what calibration calls its own lists. Give the source another name.",
                    )
                if table != "facts":
                    self._legs(table, name, instance)
        for kind, listed in (
            ("interpreter", self.settings.rag.interpreters),
            ("stage", self.settings.rag.stages),
        ):
            used = {*listed}.union(
                *(r.stages or () for r in self.settings.routes.values()) if kind == "stage" else ()
            )
            for name in self.settings.instances(kind):
                if name not in used:
                    self.warn(f"{kind} {name!r} is defined and does not run: list it in [rag] {kind}s.")

    def _legs(self, table: str, name: str, instance: Instance) -> None:
        legs = instance.keys.legs
        if legs is not None and not legs:
            message = "[] leaves nothing to search. Name legs, or say enabled = false; a job still reads it."
            self.problem((table, name, "legs"), message)
        elif legs is not None and set(legs) == {"text"} and not self.settings.rag.enable_fts:
            self.problem(
                (table, name, "legs"),
                f"legs = {list(legs)!r} leaves nothing to search while [rag] enable_fts = false.",
            )

    def _references(self) -> None:
        for table, kind in TABLES.items():
            for name, instance in self.settings.instances(kind).items():
                for option, other in instance.references.items():
                    target = instance.options[option]
                    have = self.declared[other]
                    if target not in have and not (other == "embedder" and target == "default"):
                        known = ", ".join(sorted(have)) or "none"
                        self.problem(
                            (table, name, option), f"{target!r} names no {other}. Defined {other}s: {known}."
                        )

    def _routes(self) -> None:
        sources = self.declared["provider"] | self.declared["connector"] | self.declared["fact"]
        for name, route in self.settings.routes.items():
            for source in route.sources or ():
                if source not in sources:
                    close = nearest(source, sources)
                    hint = f" Did you mean {close!r}?" if close else ""
                    self.problem(
                        ("routes", name, "sources"),
                        f"{source!r} names no source.{hint} Defined: {', '.join(sorted(sources))}.",
                    )
            if route.legs is not None and not route.legs:
                self.problem(
                    ("routes", name, "legs"),
                    "[] leaves nothing to search. Name legs, or leave the key out to ask all.",
                )
            elif route.legs is not None and set(route.legs) == {"text"} and not self.settings.rag.enable_fts:
                self.problem(
                    ("routes", name, "legs"),
                    f"legs = {list(route.legs)!r} leaves nothing to search while [rag] enable_fts = false.",
                )
            if route.fallback == name:
                self.problem(
                    ("routes", name, "fallback"), "a route cannot fall back to itself. Name another, or none."
                )
            elif (
                route.fallback is not None
                and route.fallback != "default"
                and route.fallback not in self.settings.routes
            ):
                self.problem(
                    ("routes", name, "fallback"),
                    f"{route.fallback!r} names no route. Defined: {', '.join(self.settings.routes)}.",
                )

    def _lists(self) -> None:
        """Names that stand twice in a list, where once is all that can be meant; and freshness in a list
        twice.
        """
        rag = self.settings.rag
        stages: dict[tuple[str, ...], tuple[str, ...]] = {("rag", "stages"): rag.stages}
        lists = {**stages, ("rag", "interpreters"): rag.interpreters}
        if isinstance(rag.provider, tuple):
            lists["rag", "provider"] = rag.provider
        for table in ("providers", "connectors"):
            for name, instance in self.settings.instances(TABLES[table]).items():
                lists[table, name, "legs"] = instance.keys.legs or ()
        for name, route in self.settings.routes.items():
            stages["routes", name, "stages"] = route.stages or ()
            lists |= {
                ("routes", name, "sources"): route.sources or (),
                ("routes", name, "legs"): route.legs or (),
            }
        for key, names in {**lists, **stages}.items():
            for name in dict.fromkeys(name for name in names if names.count(name) > 1):
                self.problem(key, f"{name!r} is listed {names.count(name)} times; once is enough.")
        for key, names in stages.items():
            fresh = [
                n
                for n in dict.fromkeys(names)
                if (i := self.settings.stages.get(n)) is not None and i.use == "freshness"
            ]
            if len(fresh) > 1:
                self.warn(
                    f"{'.'.join(key)} has freshness several times ({', '.join(fresh)}): age counts as often."
                    " Keep one."
                )

    def _weights(self) -> None:
        rag = self.settings.rag
        weights = (rag.hybrid_vector_weight, rag.hybrid_text_weight, *rag.leg_weights.values())
        if rag.hybrid_fusion == "weighted" and not any(weights):
            self.problem(
                ("rag", "hybrid_vector_weight"),
                "it and hybrid_text_weight are both 0, so no score is left. Give one of them a weight"
                " above 0.",
            )

    def _providers(self) -> None:
        """Sources that are named where they are asked, and are disabled."""
        provider = self.settings.rag.provider
        providers = (provider,) if isinstance(provider, str) else provider or ()
        named: dict[tuple[str, ...], tuple[str, ...]] = {("rag", "provider"): providers}
        named |= {
            ("routes", name, "sources"): route.sources or () for name, route in self.settings.routes.items()
        }
        every = {**self.settings.providers, **self.settings.connectors, **self.settings.facts}
        for key, names in named.items():
            off = [name for name in names if name in every and not every[name].keys.enabled]
            for name in off:
                said = f"source {name!r} is named and says enabled = false"
                if len(off) == len(names):
                    self.problem(key, f"{said}, so nothing is left to ask. Enable it, or name another.")
                else:
                    self.warn(f"{'.'.join(key)}: {said}; the others are asked.")

    def _jobs(self) -> None:
        for name, job in self.settings.ingest.items():
            if job.to not in self.declared["provider"]:
                known = ", ".join(sorted(self.declared["provider"])) or "none"
                self.problem(
                    ("ingest", name, "to"), f"{job.to!r} names no provider. Defined providers: {known}."
                )

    def _keys(self) -> None:
        """Every key says what it may see: one without a scope would see nothing, and one by accident too
        much.
        """
        sources = self.declared["provider"] | self.declared["connector"] | self.declared["fact"]
        hashes: dict[str, str] = {}
        for name, key in self.settings.keys.items():
            at = ("keys", name)
            if not key.unrestricted and key.ceiling is None:
                self.problem(
                    at,
                    "the key says not what it may see. Set ceiling (and compartments), or unrestricted ="
                    " true.",
                )
            if key.unrestricted and (key.ceiling or key.compartments or key.tenant):
                self.problem(
                    at,
                    "unrestricted = true leaves no meaning to tenant, compartments and ceiling; leave them"
                    " out.",
                )
            if key.hash in hashes:
                self.problem(
                    (*at, "hash"), f"the hash is also that of key {hashes[key.hash]!r}; make one for each."
                )
            hashes[key.hash] = name
            for source in key.sources or ():
                if source not in sources:
                    known = ", ".join(sorted(sources)) or "none"
                    self.problem((*at, "sources"), f"{source!r} names no source. Defined: {known}.")
            if key.generator is not None:
                self._generator((*at, "generator"), key.generator)

    def _chat(self) -> None:
        chat = self.settings.chat
        self._generator(("chat", "synthesis_model"), chat.synthesis_model)
        for name in chat.models:
            self._generator(("chat", "models"), name)
        for compartment, name in chat.compartment_generators.items():
            self._generator(("chat", "compartment_generators", compartment), name)

    def _generator(self, key: tuple[str, ...], name: str) -> None:
        known = {"extractive", *self.declared["generator"]}
        if name not in known:
            close = nearest(name, known)
            hint = f" Did you mean {close!r}?" if close else ""
            self.problem(key, f"{name!r} names no generator.{hint} Defined: {', '.join(sorted(known))}.")
