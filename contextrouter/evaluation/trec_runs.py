"""Save a run in TREC's format, and draw the metrics of several runs as a bar chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from contextrouter.errors import MissingDependency, SettingsError
from contextrouter.evaluation.retrieval import Asked


def save(path: Path, answers: Sequence[Asked], tag: str) -> None:
    """Write one line per document: question, Q0, document, rank, score, tag. Spaces in names become `_`.

    Raises SettingsError for a file that cannot be written.
    """
    lines = [
        f"{_word(answer.question.id)} Q0 {_word(name)} {rank} {1.0 / rank:.6f} {_word(tag)}"
        for answer in answers
        for rank, name in enumerate(answer.ranked, 1)
    ]
    with _writing(path):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="replace")


def _word(text: str) -> str:
    return "_".join(text.split()) or "_"


def picture(path: Path, means: Mapping[str, Mapping[str, float]]) -> None:
    """Draw the means by name and metric as bars, into a file whose suffix names its format (PNG, SVG, PDF).

    Raises MissingDependency without the extra `plot`, and SettingsError for a file that cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependency("matplotlib", "plot", what="A picture") from None
    metrics = list(dict.fromkeys(metric for values in means.values() for metric in values))
    figure = Figure(figsize=(1.6 + 1.4 * len(metrics), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    width = 0.8 / max(1, len(means))
    for number, (name, values) in enumerate(means.items()):
        positions = [index - 0.4 + width * (number + 0.5) for index in range(len(metrics))]
        bars = axes.bar(positions, [values.get(metric, 0.0) for metric in metrics], width * 0.95, label=name)
        axes.bar_label(bars, fmt="%.3f", fontsize=7)
    axes.set_xticks(range(len(metrics)), metrics)
    axes.set_ylim(0, 1.08)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        frameon=False,
        fontsize=8,
        ncols=max(1, min(3, len(means))),
        loc="upper left",
        bbox_to_anchor=(0, 1.15),
    )
    with _writing(path):
        figure.savefig(path, dpi=150)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Make the folder of a file that is written here. Raises SettingsError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise SettingsError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from None
    except ValueError as error:  # no format of pictures has this suffix
        raise SettingsError(f"{str(path)!r} cannot be drawn: {error}.") from None
