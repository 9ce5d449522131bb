"""`contextrouter eval` and `contextrouter tune`: measure answers on judged questions, and tune settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import NOTHING, OK, command
from contextrouter.errors import SettingsError
from contextrouter.evaluation import (
    METRICS,
    Asked,
    Compared,
    Judged,
    Tuned,
    abstention,
    ask,
    collect,
    compare,
    measure,
    picture,
    read,
    save,
)
from contextrouter.evaluation import tune as tune_fusion
from contextrouter.evaluation.measures import quantile
from contextrouter.evaluation.retrieval import OVERRIDES
from contextrouter.evaluation.tuning import FOLDS
from contextrouter.router import ContextRouter
from contextrouter.settings.presets import preset_names, unknown_preset

FEW = 30
"""With fewer questions a difference is hardly ever more than chance."""
Judgements = Annotated[
    str, typer.Argument(metavar="JUDGEMENTS", help="Judged questions: JSON lines, or TREC qrels.")
]
Queries = Annotated[
    str, typer.Option("--queries", metavar="PATH", help="The questions of TREC qrels: id, tab, text.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--settings", metavar="PATH", help="A settings file; several are compared."),
]
Compare = Annotated[
    list[str] | None,
    typer.Option(
        "--compare",
        metavar="NAME",
        help="A settings file or a preset; one alone is compared with settings.toml.",
    ),
]
Shadow = Annotated[
    str,
    typer.Option("--shadow", metavar="SOURCE", help="Compare this source alone with all others together."),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="As ir-measures names it; may be repeated."),
]
Depth = Annotated[
    int,
    typer.Option(
        "--depth", metavar="NUMBER", min=1, help="How many documents of each answer are judged, 1 or more."
    ),
]
Save = Annotated[str, typer.Option("--save", metavar="FOLDER", help="Save each run there, in TREC format.")]
Picture = Annotated[str, typer.Option("--picture", metavar="FILE", help="Draw the metrics as bars.")]
Metric = Annotated[str, typer.Option("--metric", metavar="NAME", help="The metric to improve.")]


@command
async def evaluate(
    judgements: Judgements,
    queries: Queries = "",
    settings: Settings = None,
    compare_with: Compare = None,
    shadow: Shadow = "",
    metric: Metrics = None,
    depth: Depth = 100,
    save_in: Save = "",
    picture_at: Picture = "",
    as_json: options.AsJson = False,
) -> int:
    """Measure answers on judged questions, and compare settings. Exits 1 when nothing relevant is found."""
    judged, metrics = read(judgements, queries), tuple(metric or METRICS)
    measure([], metrics)  # raises for a missing package or unknown metric before any question is asked
    runs: dict[str, list[Asked]] = {}
    named = [*(settings or []), *(compare_with or [])]
    if len(named) == 1 and compare_with:
        named = [options.DEFAULT, *named]  # one is compared with the settings of the folder
    paths = list(dict.fromkeys(named)) or [options.DEFAULT]
    rag = {"general_retrieval_final_count": depth}
    for path in paths:
        if shadow:
            runs |= await _ask_apart(path, judged, rag, shadow)
        else:
            runs[path] = await _ask_router(path, judged, rag)
    values = {path: measure(answers, metrics) for path, answers in runs.items()}
    summaries = {path: _summarize(answers, values[path]) for path, answers in runs.items()}
    baseline, *others = runs
    against = {
        path: {name: compare(values[path][name], values[baseline][name]) for name in metrics}
        for path in others
    }
    if as_json:
        terminal.print_json(
            {path: {**summary, "against_first": against.get(path)} for path, summary in summaries.items()}
        )
    else:
        _show(judged, summaries, against)
    for name, answers in runs.items() if save_in else ():  # behind the figures: a file may not be writable
        save(Path(save_in) / f"{Path(name).stem}.run", answers, Path(name).stem)
    if picture_at:
        picture(Path(picture_at), {path: summary["means"] for path, summary in summaries.items()})
    means = [mean for summary in summaries.values() for mean in summary["means"].values()]
    return OK if any(mean > 0 for mean in means) else NOTHING


@command
async def tune(
    judgements: Judgements,
    queries: Queries = "",
    settings: options.SettingsPath = options.DEFAULT,
    metric: Metric = METRICS[0],
    as_json: options.AsJson = False,
) -> int:
    """Try other modes and weights on judged questions, and say what they would gain. Changes nothing."""
    judged = read(judgements, queries)
    measure([], [metric])
    async with _router(settings, {}) as router:
        result = tune_fusion(router.settings.rag, await collect(router, judged), metric)
    if as_json:
        terminal.print_json(result)
    else:
        _show_tuning(settings, result)
    return OK if result.before > 0 or result.gain.mean > 0 else NOTHING


def _router(path: str, rag: Mapping[str, Any], **tables: Mapping[str, Any]) -> ContextRouter:
    """Return the router of a settings file or a preset, with changed keys of `[rag]` and of other tables."""
    changes: dict[str, Any] = {"rag": {**OVERRIDES, **rag}, **tables}
    is_preset = path in preset_names() and not Path(path).exists()
    if not is_preset and Path(path).suffix != ".toml" and not Path(path).exists():
        raise SettingsError(f"{path!r} is no settings file, and {unknown_preset(path)}")
    if is_preset:
        router = ContextRouter({"extends": path, **changes})
    else:
        router = ContextRouter.from_toml(path, **changes)
    terminal.hide(router.settings.secrets)
    return router


async def _ask_apart(
    path: str, judged: Sequence[Judged], rag: Mapping[str, Any], shadow: str
) -> dict[str, list[Asked]]:
    """Ask all sources but one, and this one alone. Raises SettingsError if there is no such source."""
    settings = _router(path, rag).settings
    if shadow not in settings.sources:
        known = ", ".join(settings.sources) or "none"
        raise SettingsError(f"Source {shadow!r} is not defined. Defined sources: {known}.")
    table = {f"{settings.sources[shadow].kind}s": {shadow: {"shadow": False}}}
    others = [source for source in settings.sources if source != shadow]
    runs = {}
    for name, sources in ((path, others), (f"{path}: {shadow}", [shadow])):
        async with _router(path, rag, **table) as router:
            runs[name] = await ask(router, judged, sources=sources)
    return runs


async def _ask_router(path: str, judged: Sequence[Judged], rag: Mapping[str, Any]) -> list[Asked]:
    async with _router(path, rag) as router:
        return await ask(router, judged)


def _summarize(answers: Sequence[Asked], values: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return the figures of one run."""
    seconds = [answer.seconds for answer in answers]
    kinds: dict[str, list[str]] = {}
    for answer in answers:
        if answer.question.counts and answer.question.kind:
            kinds.setdefault(answer.question.kind, []).append(answer.question.id)
    relevant: Counter[str] = Counter()
    among_best: Counter[str] = Counter()
    coverage: dict[str, Counter[str]] = {}
    for answer in answers:
        best = list(zip(answer.ranked, answer.sources, strict=True))[:10]
        among_best.update(source for _, source in best)
        relevant.update(source for name, source in best if answer.question.relevant.get(name, 0) > 0)
        for source, counts in answer.statuses.items():
            coverage.setdefault(source, Counter()).update(counts)
    return {
        "means": {name: fmean(by_id.values()) if by_id else 0.0 for name, by_id in values.items()},
        "kinds": {
            kind: (
                {name: fmean([by_id[id] for id in ids]) for name, by_id in values.items()}
                | {"questions": len(ids)}
            )
            for kind, ids in sorted(kinds.items())
        },
        "sources": {
            source: {"among_best_10": among_best[source], "relevant": relevant[source]}
            for source in sorted(among_best)
        },
        "coverage": {source: dict(counts) for source, counts in sorted(coverage.items())},
        "seconds": {"p50": quantile(seconds, 0.5), "p99": quantile(seconds, 0.99)},
        "abstention": {
            "below_strong": abstention(answers, "weak", "none", "skipped"),
            "none": abstention(answers, "none", "skipped"),
        },
    }


def _show(
    judged: Sequence[Judged],
    summaries: Mapping[str, Mapping[str, Any]],
    against: Mapping[str, Mapping[str, Compared]],
) -> None:
    counting = sum(question.counts for question in judged)
    unanswerable = sum(not question.answerable for question in judged)
    terminal.say(
        f"{terminal.count(len(judged), 'question')}, {counting} with relevant documents, {unanswerable}"
        " without an answer."
    )
    metrics = list(next(iter(summaries.values()))["means"])
    table = terminal.table("settings", *map(terminal.right, (*metrics, "p50", "p99")))
    for path, summary in summaries.items():
        times = [terminal.milliseconds(summary["seconds"][share]) for share in ("p50", "p99")]
        terminal.row(table, path, *[f"{summary['means'][name]:.3f}" for name in metrics], *times)
    terminal.show(table, indent=0)
    for path, differences in against.items():
        terminal.heading(
            f"{path} against the first",
            "Mean difference, its 95 % interval, and how often chance alone does as much.",
        )
        table = terminal.table("metric", *map(terminal.right, ("difference", "from", "to", "p")))
        for name, difference in differences.items():
            signed = [f"{value:+.3f}" for value in (difference.mean, difference.low, difference.high)]
            terminal.row(table, name, *signed, f"{difference.p:.3f}")
        terminal.show(table)
    for path, summary in summaries.items():
        _show_run(path, summary, metrics)
    if counting < FEW:
        terminal.out.print()
        terminal.say((f"With fewer than {FEW} questions most differences are chance.", "yellow"))


def _show_run(path: str, summary: Mapping[str, Any], metrics: Sequence[str]) -> None:
    terminal.heading(path)
    if summary["kinds"]:
        table = terminal.table("kind", terminal.right("questions"), *map(terminal.right, metrics))
        for kind, values in summary["kinds"].items():
            terminal.row(table, kind, values["questions"], *[f"{values[name]:.3f}" for name in metrics])
        terminal.show(table)
        terminal.out.print()
    table = terminal.table("source", terminal.right("among the best 10"), terminal.right("relevant"), "calls")
    for source in sorted({*summary["sources"], *summary["coverage"]}):
        counts = summary["sources"].get(source, {"among_best_10": 0, "relevant": 0})
        calls = ", ".join(
            f"{count} {status}" for status, count in sorted(summary["coverage"].get(source, {}).items())
        )
        terminal.row(table, source, counts["among_best_10"], counts["relevant"], calls)
    terminal.show(table)
    terminal.out.print()
    table = terminal.table("abstaining", terminal.right("right"), terminal.right("wrong"))
    for name, (right, wrong) in summary["abstention"].items():
        shares = ["–" if share is None else f"{share:.0%}" for share in (right, wrong)]
        terminal.row(table, name.replace("_", " "), *shares)
    terminal.show(table)


def _show_tuning(path: str, result: Tuned) -> None:
    questions = terminal.count(result.questions, "question")
    terminal.say(f"{result.metric} {result.before:.3f} over {questions} as it is set.")
    if not result.before and not result.changes:
        terminal.say(("No relevant document was found, so nothing can be compared.", "yellow"))
    elif not result.changes:
        terminal.say("Nothing that was tried is better: keep what is set.")
    else:
        terminal.heading(path, "What was best on all questions.")
        terminal.say("[rag]", indent=2)
        for key, before, after in result.changes:
            terminal.say((f"-{key} = {_toml(before)}", "red"), indent=2)
            terminal.say((f"+{key} = {_toml(after)}", "green"), indent=2)
    terminal.out.print()
    if result.questions < 2 * FOLDS:
        doubt = f"With fewer than {2 * FOLDS} questions the choice cannot be checked on other questions."
        terminal.say((doubt, "yellow"))
    elif result.changes:
        gain = result.gain
        doubt = "" if gain.low > 0 else " This may be chance: keep what is set, or judge more questions."
        if gain.mean <= 0:
            doubt = " On these questions the change is no better: keep what is set."
        interval = f"95 % interval {gain.low:+.3f} to {gain.high:+.3f}"
        terminal.say(
            f"Expected gain {gain.mean:+.3f}, {interval}, on questions that took no part in the choice."
            f"{doubt}"
        )
    if 2 * FOLDS <= result.questions < FEW:
        terminal.say((f"With fewer than {FEW} questions most differences are chance.", "yellow"))
    if result.minimum > 0:
        terminal.say(
            f"99 % of the relevant documents found reach a normalised score of {result.minimum:g}:"
            " [stages.floor] minimum."
        )


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Mapping):
        pairs = ", ".join(f'"{key}" = {number:g}' for key, number in sorted(value.items()))
        return f"{{ {pairs} }}" if pairs else "{}"
    return f"{value:g}"
