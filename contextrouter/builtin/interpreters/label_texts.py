"""What labels mean: their descriptions and examples, from the settings or a file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contextrouter.errors import SettingsError

_KEYS = ("description", "examples")


def label_texts(labels: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the texts that stand for each label: its name in words, its description, and its examples.

    Raises ValueError that names a label whose entry is no table of `description` and `examples`.
    """
    return {label: (words_of_name(label), *_described(label, entry)) for label, entry in labels.items()}


def words_of_name(label: str) -> str:
    """Return the name of a label in words: "views.code_review" is "views code review"."""
    return " ".join(re.split(r"[\s._/-]+", label)).strip() or label


def _described(label: str, entry: object) -> list[str]:
    if not label.strip():
        raise ValueError("labels: a label has no name. Give it one.")
    if not isinstance(entry, Mapping) or (unknown := sorted(set(entry) - {*_KEYS})):
        detail = f"unknown key {unknown[0]!r}" if isinstance(entry, Mapping) else f"{entry!r:.80} is no table"
        raise ValueError(f'labels: {label!r}: {detail}. Write {{ description = "…", examples = ["…"] }}.')
    description, examples = entry.get("description", ""), entry.get("examples", [])
    if not isinstance(description, str):
        raise ValueError(f"labels: {label!r}: description {description!r:.80} is no text.")
    if not isinstance(examples, list | tuple) or not all(isinstance(text, str) for text in examples):
        raise ValueError(f"labels: {label!r}: examples {examples!r:.80} is no list of texts.")
    return [text.strip() for text in (description, *examples) if text.strip()]


def read_labels(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the texts of the labels in a TOML or JSON file. Raises SettingsError when it is missing or
    wrong.
    """
    import tomli

    try:
        text = path.read_text("utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomli.loads(text)
        if not isinstance(data, dict):
            raise ValueError("it is no table of labels")
        return label_texts(data)
    except (OSError, ValueError) as error:
        raise SettingsError(f"Labels file {str(path)!r} cannot be read: {error}") from None
