"""Check the licence of every dependency: whatever any extra installs must be permissive, or listed here with
a reason.

Reads the metadata of what is installed, for this platform and this Python. `make check` runs it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DISTRIBUTION = "contextrouter-rag"
# Weak copyleft: a change of the package's own files stays under its licence; code that imports it does not.
ACCEPTED = {
    "certifi": "MPL-2.0, imported unchanged: the root certificates, behind httpx and requests",
    "hypothesis": "MPL-2.0, imported unchanged: runs in tests only",
    "pathspec": "MPL-2.0, imported unchanged: behind hatchling, mypy and mkdocs, so for building and checking only",
    "tld": "MPL-1.1 of three to choose from, imported unchanged: names of domains, behind trafilatura",
    "tqdm": "MPL-2.0 in parts, imported unchanged: progress bars behind openai, spacy and huggingface-hub",
}
# The metadata names a licence of files that are in the repository of a package and not in what is installed.
NOT_INSTALLED = {
    "docutils": "public domain and BSD; the GPL is that of its Emacs mode, tools/editors/emacs/rst.el"
}
# Too large for the environment of the checks, and in no extra but their own: their licences were read by hand.
TOO_LARGE = {
    "fastembed": "Apache-2.0",
    "ray": "Apache-2.0",
    "sentence-transformers": "Apache-2.0; PyTorch behind it is BSD, and brings NVIDIA's libraries for CUDA on Linux",
}
PERMISSIVE, WEAK, STRONG, UNKNOWN = range(4)
# In the order in which they are looked for: the name of one licence holds that of another.
KINDS = (
    (WEAK, re.compile(r"LGPL|Lesser General Public|\bMPL|Mozilla Public|\bEPL|Eclipse Public")),
    (
        STRONG,
        re.compile(r"GPL|General Public|\bSSPL|Server Side Public|\bEUPL|\bOSL|Non-?Commercial|\bCC-BY-NC"),
    ),
    (
        PERMISSIVE,
        re.compile(
            r"\bMIT|BSD|Apache|\bPSF|Python Software Foundation|\bISC|\bZlib|\bUnlicense|\bCC0|\bHPND|CNRI-Python"
            r"|\bBoost|\bBSL-1"
        ),
    ),
)
TOKENS = re.compile(r"\(|\)|[^\s()]+")


def main() -> int:
    """Print what is wrong, one line each, and return 1 if anything is."""
    problems = check(DISTRIBUTION, ACCEPTED)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def check(name: str, accepted: Mapping[str, str]) -> list[str]:
    """Return a line for each dependency of any extra of `name` that is neither permissive nor accepted, and
    for each accepted name that needs no acceptance.
    """
    problems: list[str] = []
    weak = set[str]()
    for package, (distribution, by) in sorted(dependencies(name).items()):
        if distribution is None and package in TOO_LARGE:
            continue
        if distribution is None:
            problems.append(f"{package} (required by {by}) is not installed, so its licence cannot be read.")
            continue
        kind, text = licence(distribution)
        if kind == STRONG and package in NOT_INSTALLED and not _has_emacs_files(distribution):
            continue
        if kind == WEAK:
            weak.add(package)
        if kind == UNKNOWN:
            problems.append(f"{package} (required by {by}) does not name a licence we know: {text!r}.")
        elif kind == STRONG or (kind == WEAK and package not in accepted):
            problems.append(
                f"{package} (required by {by}) is under {text!r}, which is not accepted in scripts/check_licences.py."
            )
    problems += [
        f"{package} needs no acceptance: no extra installs it, or its licence is permissive."
        for package in sorted(accepted.keys() - weak)
    ]
    return problems


def _has_emacs_files(distribution: Distribution) -> bool:
    return any(file.suffix in (".el", ".elc") for file in distribution.files or ())


def dependencies(name: str) -> dict[str, tuple[Distribution | None, str]]:
    """Return what `name` requires with all its extras: package -> (what is installed, what requires it)."""
    root = Distribution.from_name(name)
    reached: dict[str, tuple[Distribution | None, str]] = {}
    walked = set[tuple[str, frozenset[str]]]()
    waiting = [(root, frozenset(root.metadata.get_all("Provides-Extra") or ()))]
    while waiting:
        distribution, extras = waiting.pop()
        for requirement in required(distribution, extras):
            package, wanted = canonicalize_name(requirement.name), frozenset(requirement.extras)
            if (package, wanted) in walked:
                continue
            walked.add((package, wanted))
            try:
                installed = Distribution.from_name(requirement.name)
            except PackageNotFoundError:
                reached[package] = (None, distribution.name)
                continue
            reached.setdefault(package, (installed, distribution.name))
            waiting.append((installed, wanted))
    return reached


def required(distribution: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    """The requirements that hold here with these extras."""
    for text in distribution.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield requirement


def licence(distribution: Distribution) -> tuple[int, str]:
    """Return the kind of licence and the words that say so: the first field that names one decides."""
    metadata = distribution.metadata
    for expression in metadata.get_all("License-Expression") or ():
        return expression_kind(expression), expression
    classifiers = [line for line in metadata.get_all("Classifier") or () if line.startswith("License ::")]
    texts = [
        "; ".join(line.rpartition(" :: ")[2] for line in classifiers),
        *(metadata.get_all("License") or ()),
    ]
    for text in texts:
        # Of several licences in plain words the strictest counts: they do not say whether one may choose.
        kinds = [kind_of(part) for part in re.split(r"; | AND | OR |, |\n", text)]
        kinds = [kind for kind in kinds if kind != UNKNOWN]
        if kinds:
            return max(kinds), " ".join(text.split())[:80]
    return UNKNOWN, " ".join(" ".join(texts).split())[:80]


def kind_of(name: str) -> int:
    """The kind of one licence."""
    return next((kind for kind, pattern in KINDS if pattern.search(name)), UNKNOWN)


def expression_kind(expression: str) -> int:
    """The kind of an SPDX expression: the mildest of what OR joins, the strictest of what AND joins."""
    tokens = TOKENS.findall(expression)

    def alternatives() -> int:
        kind = conjunction()
        while tokens and tokens[0].upper() == "OR":
            tokens.pop(0)
            kind = min(kind, conjunction())
        return kind

    def conjunction() -> int:
        kind = operand()
        while tokens and tokens[0].upper() == "AND":
            tokens.pop(0)
            kind = max(kind, operand())
        return kind

    def operand() -> int:
        token = tokens.pop(0)
        if token == "(":
            kind = alternatives()
            tokens.pop(0)
            return kind
        if tokens and tokens[0].upper() == "WITH":
            del tokens[:2]  # an exception only permits more
        return kind_of(token)

    return alternatives()


if __name__ == "__main__":
    sys.exit(main())
