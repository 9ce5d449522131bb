"""The transform `triples`: fact extraction from JSON Lines, from other records, or from prose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from contextrouter.builtin.shared.spacy_model import ReadsWithSpacy
from contextrouter.builtin.transforms.triples import from_records, from_text
from contextrouter.contracts import Generator, Transform
from contextrouter.model import Document, Fact

MEDIA_TYPES = from_records.LINES
_MAX_PROBLEMS = 200  # at most so many problems are listed


class Triples(ReadsWithSpacy, Transform):
    """Extracts facts from a document into `metadata["facts"]`.

    A document of JSON Lines loses its content: each line is a fact. `subject`, `predicate` and `object` are
    the keys of the triple. A line may also have `confidence` (0 to 1), `valid_from`, `valid_to` (ISO 8601),
    `tenant`, `compartment` and `sensitivity`. A date as `valid_from` is its first instant in UTC, as
    `valid_to` its last; a time without zone is UTC. Other keys become attributes. A broken line is left out
    and listed in `metadata["problems"]` as "line N: …".

    With `mapping`, facts come from records of any shape in JSON, JSON Lines, CSV and TSV. The document keeps
    its content. Each entry has the keys of `subject` and `object` (dots go into objects and lists; a name
    that has dots stands in double quotes), and a word as `predicate`. An entry that matches no record is a
    problem, which names the keys that there are.

    Prose has facts only with `model` or `generator`. `model` is an installed spaCy model; its grammar gives
    facts between names ("Ada Lovelace wrote …"). A `generator` reads facts in the text. Both kinds of facts
    have a confidence of 0.5, and the method in their attributes. With `relations`, only these predicates are
    kept, from any origin.
    """

    without_model = "no facts are read in sentences"

    def __init__(
        self,
        *,
        subject: str = "subject",
        predicate: str = "predicate",
        object: str = "object",
        mapping: Sequence[dict[str, str]] = (),
        model: str = "",
        generator: Generator | None = None,
        relations: Sequence[str] = (),
    ) -> None:
        self.keys = {"subject": subject, "predicate": predicate, "object": object}
        for role, key in self.keys.items():
            if not key or key in from_records.FACT_KEYS:
                reserved = ", ".join(from_records.FACT_KEYS)
                raise ValueError(
                    f"{role} {key!r} cannot be the key of a triple. Give a name that is not {reserved}."
                )
        if len(set(self.keys.values())) < 3:
            raise ValueError(
                f"Keys {tuple(self.keys.values())!r} are not distinct. Give subject, predicate and object"
                " different keys."
            )
        if isinstance(relations, str) or not all(
            isinstance(relation, str) and relation.strip() for relation in relations
        ):
            raise ValueError(
                f'relations {relations!r} is not a list of predicates. Give one such as ["wrote", "founder'
                ' of"].'
            )
        self.subject, self.predicate, self.object = subject, predicate, object
        super().__init__(model)
        self.mapping, self.generator = tuple(mapping), generator
        self.relations = tuple(relations)
        self._rules = from_records.read_rules(self.mapping)
        self._allowed = {_normalize(relation): relation for relation in self.relations}

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the document with its facts, or unchanged if it has none."""
        media_type = document.media_type.partition(";")[0].strip().lower()
        if self._rules and from_records.is_structured(media_type):
            return [self._add_facts(document, *self._map_records(document, media_type))]
        if media_type in MEDIA_TYPES:
            return [self._add_facts(document, *self.read(document.content)).replace(content="")]
        if from_records.is_structured(media_type) or not document.content.strip():
            return [document]
        facts: list[Fact] = []
        problems: list[str] = []
        if sentences := await self.read_with_model(document.content):
            facts += from_text.patterns(sentences)
        if self.generator is not None:
            generated, problems = await from_text.generate(self.generator, document.content, self.relations)
            facts += generated
        return [self._add_facts(document, facts, problems) if facts or problems else document]

    def read(self, text: str) -> tuple[list[Fact], list[str]]:
        """Return the facts of `text`, and a problem for each broken line. Blank lines are skipped."""
        facts, problems = [], []
        for number, record in from_records.records(text, MEDIA_TYPES[0]):
            try:
                if isinstance(record, Exception):
                    raise record
                facts.append(from_records.read_fact(record, self.keys))
            except ValueError as error:
                problems.append(f"line {number}: {error}")
        return facts, problems

    def _map_records(self, document: Document, media_type: str) -> tuple[list[Fact], list[str]]:
        facts: list[Fact] = []
        problems: list[str] = []
        matches = from_records.Matches(self._rules)
        for number, record in from_records.records(document.content, media_type):
            if isinstance(record, Exception):
                problems.append(f"record {number}: {record}")
            elif isinstance(record, dict):
                facts += matches.facts(record)
            else:
                problems.append(f"record {number}: it is a {type(record).__name__}, not an object.")
        is_whole = document.parent is None
        if is_whole or not document.metadata.get("start"):  # a chunk has it, and only the first says this
            is_table = from_records.is_table(media_type)
            problems += matches.problems(is_table=is_table, is_whole=is_whole)
        return facts, problems

    def _add_facts(self, document: Document, facts: Iterable[Fact], problems: Sequence[str]) -> Document:
        """Return the document with the facts of allowed predicates, in the spelling of `relations`."""
        if self._allowed:
            renamed = ((fact, self._allowed.get(_normalize(fact.predicate))) for fact in facts)
            facts = [fact.replace(predicate=predicate) for fact, predicate in renamed if predicate]
        metadata = {**document.metadata, "facts": (*document.metadata.get("facts", ()), *facts)}
        if problems:
            lines = list(problems[:_MAX_PROBLEMS]) + (
                [f"{len(problems) - _MAX_PROBLEMS} more lines"] if len(problems) > _MAX_PROBLEMS else []
            )
            metadata["problems"] = (*document.metadata.get("problems", ()), *lines)
        return document.replace(metadata=metadata)


def _normalize(predicate: str) -> str:
    return " ".join(predicate.casefold().replace("_", " ").split())
