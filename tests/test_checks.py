"""Settings that cannot work are said before the start: all at once, where they stand, and how to mend
them.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from contextrouter import ContextRouter, Rag, Settings, SettingsError
from contextrouter.builtin.connectors.files import Files
from contextrouter.cli import terminal
from contextrouter.runtime.registry import Registry
from contextrouter.settings import Instance, SourceKeys
from contextrouter.settings.loading import load
from contextrouter.testing import Facts, Fixed, Legs, hits

MEMORY = '[providers.docs]\nuse = "memory"\n'  # its one leg is "text"


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            MEMORY + '[routes.x]\nlegs = ["txet"]\n',
            "settings.toml:4: routes.x.legs: no source has a leg 'txet'. Did you mean 'text'? Legs: facets, mentions, text.",
        ),
        (
            MEMORY + '[connectors.n]\nuse = "files"\npath = "."\n[providers.v]\nuse = "memory"\nembedder ='
            ' "default"\n'
            '[routes.x]\nsources = ["docs"]\nlegs = ["vector"]\n',
            (
                "settings.toml:11: routes.x.legs: no source of this route has any of the legs ['vector']."
                " Legs of its sources: facets, mentions, text."
            ),
        ),
        (
            "[rag]\nenable_fts = false\n" + MEMORY + '[routes.x]\nlegs = ["text"]\n',
            (
                "settings.toml:6: routes.x.legs: legs = ['text'] leaves nothing to search, because [rag]"
                " enable_fts = false. Name another leg, or set enable_fts = true."
            ),
        ),
        (
            "[rag]\nenable_fts = false\n" + MEMORY,
            (
                "settings.toml:2: rag.enable_fts: every source has only the leg 'text', so nothing is searched."
                " Set enable_fts = true, or give a source an embedder."
            ),
        ),
        (
            MEMORY + "legs = []\n",
            (
                "settings.toml:3: providers.docs.legs: [] leaves nothing to search. "
                "Name legs, or set enabled = false; an ingestion job can still read the source."
            ),
        ),
        (
            MEMORY + "[routes.x]\nlegs = []\n",
            (
                "settings.toml:4: routes.x.legs: [] leaves nothing to search. Name legs, or remove the key to"
                " search all legs."
            ),
        ),
        (
            '[rag]\nhybrid_fusion = "weighted"\nhybrid_vector_weight = 0.0\nhybrid_text_weight = 0\n',
            (
                "settings.toml:3: rag.hybrid_vector_weight: it and hybrid_text_weight are both 0, so every"
                " score is 0. Give one a weight above 0."
            ),
        ),
        ("[rag]\nrrf_k = inf\n", "settings.toml:2: rag.rrf_k: a finite number is expected, not inf or nan."),
        (
            "[rag]\nhybrid_text_weight = nan\n",
            "settings.toml:2: rag.hybrid_text_weight: a finite number is expected, not inf or nan.",
        ),
        (
            "[rag]\nleg_weights = { text = inf }\n",
            "settings.toml:2: rag.leg_weights: a finite number is expected, not inf or nan.",
        ),
        (
            MEMORY + "weight = inf\n",
            "settings.toml:3: providers.docs.weight: a finite number is expected, not inf or nan.",
        ),
        (
            '[rag]\nprovider = "docs"\n' + MEMORY + "enabled = false\n",
            (
                "settings.toml:2: rag.provider: source 'docs' is in this list, but its table has"
                " enabled = false, and no other source is left. Enable it, or name another."
            ),
        ),
        (
            MEMORY + 'enabled = false\n[routes.x]\nsources = ["docs"]\n',
            (
                "settings.toml:5: routes.x.sources: source 'docs' is in this list, but its table has"
                " enabled = false, and no other source is left. Enable it, or name another."
            ),
        ),
        (
            MEMORY + "[rag.max_per_source]\ndosc = 3\n",
            (
                "settings.toml:4: rag.max_per_source.dosc: 'dosc' names no provider or connector. Did you mean"
                " 'docs'? Defined: docs."
            ),
        ),
        (
            MEMORY + "[routes.x]\nmax_per_source = { dosc = 3 }\n",
            (
                "settings.toml:4: routes.x.max_per_source.dosc: 'dosc' names no provider or connector. Did you"
                " mean 'docs'? Defined: docs."
            ),
        ),
        (
            '[rag]\nmax_per_source = "many"\n',
            "settings.toml:2: rag.max_per_source: expected `int | table`, got `str`, not 'many'.",
        ),
        (
            '[routes.x]\nfallback = "x"\n',
            "settings.toml:2: routes.x.fallback: a route cannot fall back to itself. Name another route, or remove the"
            " key.",
        ),
        (
            '[rag]\nstages = ["freshness", "freshness"]\n',
            "settings.toml:2: rag.stages: 'freshness' is listed 2 times. List it once.",
        ),
        (
            '[rag]\ninterpreters = ["normalize", "normalize"]\n',
            "settings.toml:2: rag.interpreters: 'normalize' is listed 2 times. List it once.",
        ),
        (
            MEMORY + 'legs = ["text", "text"]\n',
            "settings.toml:3: providers.docs.legs: 'text' is listed 2 times. List it once.",
        ),
        (
            '[routes.x]\nstages = ["freshness", "freshness"]\n',
            "settings.toml:2: routes.x.stages: 'freshness' is listed 2 times. List it once.",
        ),
    ],
)
def test_what_cannot_work_is_said_with_its_line_and_how_to_mend_it(tmp_path: Path, text: str, problem: str):
    with pytest.raises(SettingsError) as caught:
        ContextRouter.from_toml(written(tmp_path, text))
    assert str(caught.value) == problem


def test_problems_of_sources_that_are_made_come_all_at_once(tmp_path: Path):
    text = MEMORY + 'legs = ["vectro"]\n[routes.x]\nlegs = ["txt"]\n[rag]\nleg_weights = { keyword = 2 }\n'
    with pytest.raises(SettingsError) as caught:
        ContextRouter.from_toml(written(tmp_path, text))
    assert [(p.file, p.line) for p in caught.value.problems] == [
        ("settings.toml", 3),
        ("settings.toml", 7),
        ("settings.toml", 5),
    ]


def test_a_plugin_folder_that_is_not_there_is_one_problem_among_the_others(tmp_path: Path):
    text = '[plugins]\npaths = [".",\n"nowhere"]\n[rag]\nrrfk = 3\n'
    with pytest.raises(SettingsError) as caught:
        ContextRouter.from_toml(written(tmp_path, text))
    first, second = map(str, caught.value.problems)
    assert first.startswith(
        f"settings.toml:3: plugins.paths.1: plugin folder '{tmp_path / 'nowhere'}' does not exist."
    )
    assert second.startswith("settings.toml:5: rag.rrfk: unknown key. Did you mean `rrf_k`?")


def test_weights_of_other_legs_are_enough_for_weighted_fusion(tmp_path: Path):
    rag = (
        '[rag]\nhybrid_fusion = "weighted"\nhybrid_vector_weight = 0\nhybrid_text_weight = 0\nleg_weights = {'
        " keywords = 1 }\n"
    )
    assert (
        ContextRouter.from_toml(written(tmp_path, rag + MEMORY + 'embedder = "default"\n')).settings.warnings
        == ()
    )


DOUBTFUL = """
[rag]
enable_fts = false
stages = ["freshness", "old"]
provider = ["docs", "off", "n"]
[stages.old]
use = "freshness"
[providers.docs]
use = "memory"
embedder = "default"
[providers.off]
use = "memory"
enabled = false
[providers.n]
use = "memory"
"""


def test_doubtful_settings_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A log is for whoever starts a router; a command logs nothing and shows notes instead."""
    path = written(tmp_path, DOUBTFUL)
    said = [
        "rag.stages has several freshness stages (freshness, old), so age counts several times. Keep one.",
        "rag.provider: source 'off' is in this list, but its table has enabled = false. Only the other sources"
        " are asked.",
        "source 'n' has only the leg 'text'. It is never searched, because [rag] enable_fts = false.",
    ]
    router = ContextRouter.from_toml(path)
    assert list(router.settings.warnings) == said
    assert [(record.levelno, record.name, record.message) for record in caplog.records] == [
        (logging.WARNING, "contextrouter", text) for text in said
    ]
    caplog.clear()
    with terminal.quiet(logging.ERROR):
        ContextRouter.from_toml(path)
    assert not caplog.records
    assert logging.getLogger("contextrouter").level == logging.NOTSET


RERANKERS = """
[rag]
enable_reranker = false
stages = ["centrality", "best", "similarity", "gone", "freshness"]
[stages.best]
use = "llm"
generator = "writer"
[generators.writer]
use = "extractive"
[stages.similarity]
embedder = "default"
[stages.gone]
use = "similarity"
embedder = "default"
enabled = false
[routes.x]
stages = ["best"]
"""


def test_rerankers_that_run_although_enable_reranker_is_false_make_a_warning(tmp_path: Path):
    settings = ContextRouter.from_toml(written(tmp_path, RERANKERS)).settings
    assert settings.warnings == (
        "[rag] enable_reranker = false switches off only `centrality`. Stage 'best' still runs. To turn it"
        " off, set [stages.best] enabled = false, or remove it from rag.stages and routes.x.stages.",
        "[rag] enable_reranker = false switches off only `centrality`. Stage 'similarity' still runs. To"
        " turn it off, set [stages.similarity] enabled = false, or remove it from rag.stages.",
    )


@pytest.mark.parametrize(
    ("use", "keys"),
    [
        ("llm", 'generator = "g"\n[generators.g]\nuse = "extractive"'),
        ("api", 'url = "https://example.org"'),
        ("similarity", 'embedder = "default"'),
        ("cross_encoder", ""),
    ],
)
def test_each_other_reranker_makes_the_warning_and_none_where_it_is_off(tmp_path: Path, use: str, keys: str):
    def warnings(rag: str) -> int:
        text = f'[rag]\nstages = ["best"]\n{rag}\n[stages.best]\nuse = "{use}"\n{keys}\n'
        return len(load(written(tmp_path, text), Registry, environ={})[0].warnings)

    assert warnings("enable_reranker = false") == 1
    assert warnings("enable_reranker = true") == 0
    assert warnings("enable_reranker = false\nuse_enhancements = false") == 0
    own_switch = warnings("enable_reranker = false\nenable_cross_encoder = false")
    assert own_switch == (0 if use == "cross_encoder" else 1)


def test_the_time_zone_reaches_what_reads_days_unless_its_table_has_another(tmp_path: Path):
    text = (
        '[rag]\ntimezone = "Asia/Tokyo"\ninterpreters = ["normalize", "here"]\n[interpreters.here]\nuse ='
        ' "normalize"\n'
    )
    settings = load(written(tmp_path, text + 'timezone = "Europe/Berlin"\n'), Registry, environ={})[0]
    zones = {name: instance.options["timezone"] for name, instance in settings.interpreters.items()}
    assert zones == {"normalize": "Asia/Tokyo", "here": "Europe/Berlin"}
    assert settings.origins["interpreters.normalize.timezone"] == "settings.toml:2"
    unset = load({"interpreters": {"normalize": {}}}, Registry, environ={})[0]
    assert unset.interpreters["normalize"].options == {}


# ------------------------------------------------------------------------------------------------- instances
# made by hand


async def test_instances_made_by_hand_join_those_of_settings_made_by_hand():
    keys = SourceKeys(weight=2.0)
    docs = Instance(kind="provider", name="docs", use="memory", keys=SourceKeys())
    settings = Settings(
        rag=Rag(cache_enabled=False),
        providers={"docs": docs},
        connectors={"weighed": Instance(kind="connector", name="weighed", use="(made by hand)", keys=keys)},
    )
    async with ContextRouter(
        settings, connectors={"web": Fixed("a"), "weighed": Fixed("b")}, facts={"g": Facts([])}
    ) as router:
        context = await router.route("q")
    assert {envelope.document.id for envelope in context.envelopes} == {"a", "b"}
    assert {report.source for report in context.coverage} == {"docs", "web", "weighed", "g"}
    assert router.settings.sources["weighed"].keys.weight == 2.0


NOTES = Instance(kind="connector", name="notes", use="files", keys=SourceKeys(), options={"path": "."})


@pytest.mark.parametrize(
    ("settings", "given", "problem"),
    [
        (
            Settings(connectors={"notes": NOTES}),
            {"connectors": {"notes": Fixed()}},
            (
                "connectors.notes: an instance made by hand also has the name 'notes', and names are unique."
                " Give one of them another name."
            ),
        ),
        (
            Settings(connectors={"notes": NOTES}),
            {"providers": {"notes": Legs({"text": hits("a")})}},
            (
                "connectors.notes: an instance made by hand also has the name 'notes', and names are unique."
                " Give one of them another name."
            ),
        ),
        (
            {"connectors": {"notes": {"use": "files", "path": "."}}},
            {"connectors": {"notes": Fixed()}},
            (
                "call: connectors.notes.use: connector 'notes' is made by hand, so `use` has no effect."
                " Remove it."
            ),
        ),
        (
            {},
            {"connectors": {"My.Notes": Fixed()}},
            (
                "connectors.My.Notes: name 'My.Notes' is not allowed. Use small letters, digits and"
                " underscores, first a letter."
            ),
        ),
        (
            Settings(),
            {"facts": {"": Facts([])}},
            "facts.: name '' is not allowed. Use small letters, digits and underscores, first a letter.",
        ),
        (
            Settings(),
            {"facts": {"g": Facts([])}, "connectors": {"g": Fixed()}},
            "two instances made by hand, a connector and a fact, have the name 'g'.",
        ),
    ],
)
def test_names_of_instances_made_by_hand_are_checked(settings: Any, given: dict[str, Any], problem: str):
    with pytest.raises(SettingsError) as caught:
        ContextRouter(settings, **given)
    assert problem in str(caught.value)


def test_settings_made_by_hand_that_clash_with_nothing_keep_their_instances():
    router = ContextRouter(Settings(connectors={"notes": NOTES}), connectors={"web": Fixed()})
    assert list(router.instances.sources) == ["notes", "web"]
    assert isinstance(router.instances.sources["notes"], Files)
