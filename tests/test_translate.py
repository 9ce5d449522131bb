"""The transform `translate`: what becomes of texts in other languages, and of answers that are no translation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextrouter import Completion, ContextRouter, Document, Generator, Scope
from contextrouter.builtin.shared.loopback_server import Loopback
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.builtin.transforms.translate import Translate, read_translation
from contextrouter.ingest import run
from contextrouter.ingest.preparation import build_entry, configuration
from contextrouter.model import SEARCH_TEXT
from contextrouter.text.prompt_injection import Fence

FENCE = Fence()
GERMAN = "Der Mond hebt das Wasser der Meere zweimal am Tag, und die Sonne hilft ihm dabei ein wenig."
ENGLISH = "The moon raises the water of the seas twice a day, and the sun helps it a little."


class Told(Generator):
    """Answers with what it was made with: a text, a completion, an exception, or a function of the text."""

    def __init__(self, answer: Any = ENGLISH) -> None:
        self.answer, self.prompts, self.texts = answer, [""], [""]

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        self.prompts.append(messages[0]["content"])
        self.texts.append(messages[1]["content"])
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, Completion):
            return self.answer
        text = "\n".join(messages[1]["content"].split("\n")[1:-1])
        return Completion(text=self.answer(text) if callable(self.answer) else self.answer)


async def made(generator: Generator, content: str = GERMAN, **fields: Any) -> Document:
    transform = Translate(generator=generator, languages=["en", "de", "fr", "zh"])
    await transform.open()
    (document,) = await transform.transform(Document(id="d", content=content, **fields))
    await transform.aclose()
    return document


@pytest.mark.case("T19")
async def test_a_text_in_another_language_is_translated_and_the_original_stays():
    metadata = {"topic": "sea", SEARCH_TEXT: "Mond"}
    document = await made(Told(), title="Gezeiten", url="https://e.org/de", metadata=metadata)
    assert (document.content, document.language) == (ENGLISH, "en")
    assert document.metadata == {"topic": "sea", "original": GERMAN, "original_language": "de"}
    assert (document.id, document.title, document.url) == ("d", "Gezeiten", "https://e.org/de")


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        (ENGLISH, {}),
        (GERMAN, {"language": "en-US"}),
        ("Mond", {}),
        (" \n", {}),
        ('[{"text": "Der Mond hebt das Wasser der Meere."}]', {"media_type": "application/json"}),
        ("satz = 'Der Mond hebt das Wasser der Meere.'", {"media_type": "text/x-python; charset=utf-8"}),
        (ENGLISH, {"language": "en", "metadata": {"original": GERMAN, "original_language": "de"}}),
    ],
)
@pytest.mark.case("T19")
async def test_what_needs_no_translation_or_cannot_have_one_is_sent_nowhere(
    content: str, fields: dict[str, Any]
):
    generator = Told()
    document = await made(generator, content, **fields)
    assert (document.content, document.metadata) == (content, fields.get("metadata", {}))
    assert len(generator.prompts) == 1


async def test_the_language_of_the_document_counts_more_than_its_words():
    generator = Told()
    document = await made(generator, "Mond und Meer", language="de-AT")
    assert document.metadata["original_language"] == "de-AT"
    assert "from the language 'de' into the language 'en'" in generator.prompts[1]


async def test_the_text_stands_between_fences_that_nobody_can_guess():
    generator = Told(lambda text: ENGLISH)
    await made(generator)
    await made(generator)
    fences = [re.findall("<<<.*?>>>", prompt) for prompt in generator.prompts[1:]]
    assert generator.texts[1:] == [f"{begin}\n{GERMAN}\n{end}" for begin, end in fences]
    assert len({begin for begin, _ in fences}) == 2


NO_TRANSLATIONS = [
    (ConnectionError("gone"), "ConnectionError: gone"),
    ("", "The answer is empty"),
    (Completion(text=ENGLISH, finish="length"), "The answer was cut off"),
    (Completion(text="", finish="content_filter"), "refuses"),
    ("moon " * 200, "The answer has 999 characters, for a text of 91"),
    (GERMAN, "The answer is still in 'de'"),
    (lambda text: text.replace("Mond", "moon"), "The answer is still in 'de'"),
]


@pytest.mark.parametrize(("answer", "reason"), NO_TRANSLATIONS)
@pytest.mark.case("T19")
async def test_an_answer_that_is_no_translation_leaves_the_original_and_a_problem(answer: Any, reason: str):
    document = await made(Told(answer), metadata={"problems": ("before",)})
    assert (document.content, document.language) == (GERMAN, "de")
    assert "original" not in document.metadata
    before, problem = document.metadata["problems"]
    assert before == "before"
    assert problem.startswith("was not translated from 'de': ")
    assert reason in problem


async def test_one_part_that_fails_leaves_the_whole_text_as_it_was():
    def all_but_the_last(text: str) -> str:
        return "" if "Ende" in text else ENGLISH * (len(text) // 100)

    long = f"{GERMAN}\n\n" * 40 + "Das ist das Ende."
    generator = Told(all_but_the_last)
    document = await made(generator, long)
    assert len(generator.prompts) == 3
    assert document.content == long


@settings(max_examples=60)
@given(st.text(alphabet="ab .\n\t量", max_size=5000))
async def test_white_space_between_the_parts_of_a_text_stays(text: str):
    transform = Translate(generator=Told(str.upper))
    if not text.strip():
        return
    (document,) = await transform.transform(Document(content=text, language="de"))
    if "problems" not in document.metadata:
        assert document.content == text.upper()


@given(text=st.text(min_size=1), answer=st.text())
def test_an_answer_is_taken_whole_or_refused(text: str, answer: str):
    try:
        translation = read_translation(Completion(text=answer), text, FENCE)
    except ValueError:
        assert not answer.strip() or len(answer.strip()) > len(text) or len(text) > 10 * len(answer.strip())
    else:
        assert translation == answer.strip()
        assert len(translation) <= 12 * len(text) + 200


def test_fences_around_an_answer_are_taken_off_and_one_within_refuses_it():
    assert read_translation(Completion(text=FENCE.around("Moon")), "Mond", FENCE) == "Moon"
    for mark in (FENCE.begin, FENCE.end):
        with pytest.raises(ValueError, match="fence"):
            read_translation(Completion(text=f"Moon {mark} Sun"), "Mond Sonne", FENCE)
    with pytest.raises(ValueError, match="has 14 characters, for a text of 2000"):
        read_translation(Completion(text="I cannot, sir."), "x" * 2000, FENCE)
    assert read_translation(Completion(text="m" * 1000), "量" * 100, FENCE)  # ten letters a character


@pytest.mark.parametrize(
    "keys",
    [
        {"to": "English"},
        {"to": ""},
        {"languages": ["de", "fr"]},
        {"languages": "de"},
        {"minimum": 0},
        {"confidence": 1.5},
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(keys: dict[str, Any]):
    with pytest.raises(ValueError, match=f"^{next(iter(keys))} "):
        Translate(generator=Told(), **keys)


def test_another_target_or_generator_processes_documents_again():
    class Other(Told):
        pass

    marks = {
        configuration([Translate(generator=generator, to=to)], None, ())
        for generator, to in ((Told(), "en"), (Told(), "de"), (Other(), "en"))
    }
    assert len(marks) == 3


@pytest.mark.case("T19")
async def test_before_chunk_the_original_is_the_document_that_the_chunks_were_cut_from():
    translate = Translate(generator=Told(), languages=["en", "de"])
    await translate.open()
    document = Document(id="d", content=GERMAN)
    entry, problems = await build_entry(document, [translate, Chunk()], "mark")
    (chunk,) = entry.chunks
    assert (chunk.content, chunk.language, chunk.parent) == (ENGLISH, "en", "d")
    assert chunk.metadata["original_language"] == "de"
    assert "original" not in chunk.metadata
    assert (entry.document.content, entry.document.language) == (GERMAN, "de")
    assert (entry.fingerprint, problems) == ("mark", [])
    await translate.aclose()
    (chunk,) = await Chunk().transform(Document(id="d", content=ENGLISH, metadata={"original": "yes"}))
    assert chunk.metadata["original"] == "yes"  # what a document says of itself stays


@pytest.mark.parametrize(
    ("metadata", "mark"),
    [({}, "try_again.mark"), ({"try_again": True}, "mark"), ({"draft": True}, "try_again.mark")],
)
async def test_only_a_transform_says_that_a_document_is_done_again(metadata: dict[str, Any], mark: str):
    """What a source says in its metadata would have the document done again for ever."""
    document = Document(id="d", content=GERMAN, language="de", metadata=metadata)
    entry, _ = await build_entry(document, [Translate(generator=Told("")), Chunk()], "mark")
    assert entry.fingerprint == mark
    assert all("try_again" not in chunk.metadata for chunk in entry.chunks)


# Through the settings, with a server on this machine.


class Server(Loopback):
    """Translates the two German sentences as `POST /v1/chat/completions`, or refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.works = 0, True

    def answer(self, path: str, body: bytes) -> tuple[bytes, bytes]:
        self.calls += 1
        text = ENGLISH if self.works and GERMAN in json.loads(body)["messages"][1]["content"] else ""
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "usage": usage}
        return b"application/json", json.dumps({**answer, "choices": [choice]}).encode()


PLUGIN = '''
from contextrouter.builtin.transforms.translate import Translate

class Translation(Translate):
    """The transform under a name of its own."""
'''


def write(folder: Path, port: int) -> Path:
    for name in ("plugins", "texts"):
        (folder / name).mkdir()
    (folder / "plugins" / "translation.py").write_text(PLUGIN, "utf-8")
    (folder / "texts" / "gezeiten.md").write_text(f"# Gezeiten\n\n{GERMAN}\n", "utf-8")
    (folder / "texts" / "jam.md").write_text(
        "# Jam\n\nSugar keeps the fruit of summer for a year.\n", "utf-8"
    )
    path = folder / "settings.toml"
    path.write_text(
        f"""
[plugins]
paths = ["plugins"]
[rag]
interpreters = []
[providers.store]
use = "sqlite"
path = "store.db"
embedder = ""
[transforms.translation]
generator = "local"
to = "en"
languages = ["en", "de"]
[generators.local]
use = "openai"
model = "m"
base_url = "http://127.0.0.1:{port}/v1"
[ingest.texts]
from = "texts"
to = "store"
transforms = ["chunk", "translation"]
sensitivity = "internal"
""",
        "utf-8",
    )
    return path


@pytest.mark.case("T19")
async def test_a_question_in_english_finds_a_german_text_and_its_original_can_be_cited(tmp_path: Path):
    server = Server()
    path = write(tmp_path, await server.listen())
    report = (await run(path))["texts"]
    assert (report.added, report.skipped, server.calls) == (2, [], 1)
    async with ContextRouter.from_toml(path) as router:
        context = await router.route("What raises the water of the seas?", scope=Scope(ceiling="internal"))
        hidden = await router.route("What raises the water of the seas?", scope=Scope())
    await server.aclose()
    envelope, citation = context.envelopes[0], context.citations[0]
    assert ENGLISH in context.text
    assert GERMAN not in context.text
    assert (envelope.document.language, citation.url.startswith("file:")) == ("en", True)
    assert citation.url.endswith("/gezeiten.md")
    assert GERMAN in envelope.document.metadata["original"]
    assert envelope.document.metadata["original_language"] == "de"
    assert hidden.envelopes == ()
    assert (await run(path))["texts"].unchanged == 2


@pytest.mark.case("T19")
async def test_a_text_that_could_not_be_translated_is_stored_and_tried_again(tmp_path: Path):
    server = Server()
    path = write(tmp_path, await server.listen())
    server.works = False
    report = (await run(path))["texts"]
    assert report.added == 2
    ((name, problem),) = report.skipped
    assert name == "texts:gezeiten.md"
    assert "was not translated from 'de': ValueError: The answer is empty." in problem
    async with ContextRouter.from_toml(path) as router:
        context = await router.route("Wasser der Meere")
    assert GERMAN in context.text
    server.works = True
    report = (await run(path))["texts"]
    assert (report.changed, report.unchanged, report.skipped) == (1, 1, [])
    async with ContextRouter.from_toml(path) as router:
        context = await router.route("water of the seas")
    assert ENGLISH in context.text
    calls = server.calls
    assert (await run(path))["texts"].unchanged == 2
    assert server.calls == calls
    await server.aclose()
