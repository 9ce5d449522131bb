"""`contextrouter eval` and `contextrouter tune`: how good are the answers, and what would make them
better?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import NOTHING, OK, command
from contextrouter.evaluation import (
    METRICS,
    Asked,
    Compared,
    Judged,
    Tuned,
    ask,
    compare,
    measure,
    picture,
    read,
    save,
)
from contextrouter.evaluation import abstention as abstained
from contextrouter.evaluation import tune as tuned
from contextrouter.evaluation.measures import quantile
from contextrouter.evaluation.retrieval import OVERRIDES
from contextrouter.evaluation.tuning import FOLDS
from contextrouter.router import ContextRouter

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
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="As ir-measures names it; may be repeated."),
]
Depth = Annotated[
    int, typer.Option("--depth", metavar="NUMBER", help="How many documents of each answer are judged.")
]
Save = Annotated[str, typer.Option("--save", metavar="FOLDER", help="Keep each run there, in TREC format.")]
Picture = Annotated[str, typer.Option("--picture", metavar="FILE", help="Draw the metrics as bars.")]
Metric = Annotated[str, typer.Option("--metric", metavar="NAME", help="What is made better.")]


@command
async def evaluate(
    judgements: Judgements,
    queries: Queries = "",
    settings: Settings = None,
    metric: Metrics = None,
    depth: Depth = 100,
    save_in: Save = "",
    picture_at: Picture = "",
    as_json: options.AsJson = False,
) -> int:
    """Measure answers on judged questions, and compare settings. Exits 1 when nothing relevant is found."""
    judged, metrics = read(judgements, queries), tuple(metric or METRICS)
    measure([], metrics)  # what is missing or misspelt is said before anything is asked
    runs: dict[str, list[Asked]] = {}
    for path in settings or [options.DEFAULT]:
        runs[path] = await _asked(path, judged, {"general_retrieval_final_count": max(1, depth)})
        if save_in:
            save(Path(save_in) / f"{Path(path).stem}.run", runs[path], Path(path).stem)
    values = {path: measure(answers, metrics) for path, answers in runs.items()}
    told = {path: _told(answers, values[path]) for path, answers in runs.items()}
    first, *others = runs
    against = {
        path: {name: compare(values[path][name], values[first][name]) for name in metrics} for path in others
    }
    if picture_at:
        picture(Path(picture_at), {path: found["means"] for path, found in told.items()})
    if as_json:
        terminal.print_json(
            {path: {**found, "against_first": against.get(path)} for path, found in told.items()}
        )
    else:
        _show(judged, told, against)
    return OK if any(mean > 0 for found in told.values() for mean in found["means"].values()) else NOTHING


@command
async def tune(
    judgements: Judgements,
    queries: Queries = "",
    settings: options.SettingsPath = options.DEFAULT,
    metric: Metric = METRICS[0],
    as_json: options.AsJson = False,
) -> int:
    """Try other weights and k on judged questions, and say what they would gain. Changes nothing."""
    judged = read(judgements, queries)
    measure([], [metric])
    answers = await _asked(
        settings, judged, {"general_retrieval_final_count": 1_000_000, "stages": []}, whole=True
    )
    found = tuned(_router(settings, {}), answers, metric)
    if as_json:
        terminal.print_json(found)
    else:
        _show_tuned(settings, found)
    return OK


def _router(path: str, rag: Mapping[str, Any]) -> ContextRouter:
    router = ContextRouter.from_toml(path, rag={**OVERRIDES, **rag})
    terminal.hide(router.settings.secrets)
    return router


async def _asked(
    path: str, judged: Sequence[Judged], rag: Mapping[str, Any], *, whole: bool = False
) -> list[Asked]:
    async with _router(path, rag) as router:
        return await ask(router, judged, whole=whole)


def _told(answers: Sequence[Asked], values: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """All that is said of one run."""
    seconds = [each.seconds for each in answers]
    kinds: dict[str, list[str]] = {}
    for each in answers:
        if each.question.counts and each.question.kind:
            kinds.setdefault(each.question.kind, []).append(each.question.id)
    relevant: Counter[str] = Counter()
    shown: Counter[str] = Counter()
    coverage: dict[str, Counter[str]] = {}
    for each in answers:
        best = list(zip(each.ranked, each.sources, strict=True))[:10]
        shown.update(source for _, source in best)
        relevant.update(source for name, source in best if each.question.relevant.get(name, 0) > 0)
        for source, counts in each.statuses.items():
            coverage.setdefault(source, Counter()).update(counts)
    return {
        "means": {name: fmean(found.values()) if found else 0.0 for name, found in values.items()},
        "kinds": {
            kind: (
                {name: fmean([found[id] for id in ids]) for name, found in values.items()}
                | {"questions": len(ids)}
            )
            for kind, ids in sorted(kinds.items())
        },
        "sources": {
            source: {"among_best_10": shown[source], "relevant": relevant[source]} for source in sorted(shown)
        },
        "coverage": {source: dict(counts) for source, counts in sorted(coverage.items())},
        "seconds": {"p50": quantile(seconds, 0.5), "p99": quantile(seconds, 0.99)},
        "abstention": {
            "below_strong": abstained(answers, "weak", "none", "skipped"),
            "none": abstained(answers, "none", "skipped"),
        },
    }


def _show(
    judged: Sequence[Judged],
    told: Mapping[str, Mapping[str, Any]],
    against: Mapping[str, Mapping[str, Compared]],
) -> None:
    counting, without = sum(each.counts for each in judged), sum(not each.answerable for each in judged)
    terminal.say(
        f"{terminal.count(len(judged), 'question')}, {counting} with relevant documents, {without} without an"
        " answer."
    )
    metrics = list(next(iter(told.values()))["means"])
    made = terminal.table("settings", *map(terminal.right, (*metrics, "p50", "p99")))
    for path, found in told.items():
        times = [terminal.milliseconds(found["seconds"][share]) for share in ("p50", "p99")]
        terminal.row(made, path, *[f"{found['means'][name]:.3f}" for name in metrics], *times)
    terminal.show(made, indent=0)
    for path, differences in against.items():
        terminal.heading(
            f"{path} against the first",
            "Mean difference, its 95 % interval, and how often chance alone does as much.",
        )
        made = terminal.table(
            "metric",
            terminal.right("difference"),
            terminal.right("from"),
            terminal.right("to"),
            terminal.right("p"),
        )
        for name, each in differences.items():
            terminal.row(
                made, name, f"{each.mean:+.3f}", f"{each.low:+.3f}", f"{each.high:+.3f}", f"{each.p:.3f}"
            )
        terminal.show(made)
    for path, found in told.items():
        _show_one(path, found, metrics)
    if counting < FEW:
        terminal.out.print()
        terminal.say((f"With fewer than {FEW} questions most differences are chance.", "yellow"))


def _show_one(path: str, found: Mapping[str, Any], metrics: Sequence[str]) -> None:
    terminal.heading(path)
    if found["kinds"]:
        made = terminal.table("kind", terminal.right("questions"), *map(terminal.right, metrics))
        for kind, values in found["kinds"].items():
            terminal.row(made, kind, values["questions"], *[f"{values[name]:.3f}" for name in metrics])
        terminal.show(made)
        terminal.out.print()
    made = terminal.table("source", terminal.right("among the best 10"), terminal.right("relevant"), "calls")
    for source in sorted({*found["sources"], *found["coverage"]}):
        counts = found["sources"].get(source, {"among_best_10": 0, "relevant": 0})
        calls = ", ".join(
            f"{count} {status}" for status, count in sorted(found["coverage"].get(source, {}).items())
        )
        terminal.row(made, source, counts["among_best_10"], counts["relevant"], calls)
    terminal.show(made)
    terminal.out.print()
    made = terminal.table("abstaining", terminal.right("right"), terminal.right("wrong"))
    for name, (right, wrong) in found["abstention"].items():
        terminal.row(
            made,
            name.replace("_", " "),
            *["–" if share is None else f"{share:.0%}" for share in (right, wrong)],
        )
    terminal.show(made)


def _show_tuned(path: str, found: Tuned) -> None:
    terminal.say(
        f"{found.metric} {found.before:.3f} over {terminal.count(found.questions, 'question')} as it is set."
    )
    if not found.changes:
        terminal.say("Nothing that was tried is better: keep what is set.")
    else:
        terminal.heading(path, "What was best on all questions.")
        terminal.say("[rag]", indent=2)
        for key, before, after in found.changes:
            terminal.say((f"-{key} = {_toml(before)}", "red"), indent=2)
            terminal.say((f"+{key} = {_toml(after)}", "green"), indent=2)
    terminal.out.print()
    if found.questions < 2 * FOLDS:
        terminal.say(
            (
                f"With fewer than {2 * FOLDS} questions nothing can be checked; this promises nothing.",
                "yellow",
            )
        )
    elif found.changes:
        gain = found.gain
        sure = "" if gain.low > 0 else " It may be nothing: keep what is set, or judge more questions."
        interval = f"95 % interval {gain.low:+.3f} to {gain.high:+.3f}"
        terminal.say(
            f"Expected gain {gain.mean:+.3f}, {interval}, on questions that took no part in the choice.{sure}"
        )
    if found.minimum > 0:
        terminal.say(
            f"99 % of the relevant documents found reach a normalised score of {found.minimum:g}:"
            " [stages.floor] minimum."
        )


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f'"{key}" = {number:g}' for key, number in sorted(value.items())) + " }"
            if value
            else "{}"
        )
    return f"{value:g}"
