"""The language of a question: its script, then its running words among the languages that are expected; none
where the question does not tell.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from contextrouter import Intent, Request
from contextrouter.builtin.interpreters.language import Language
from contextrouter.errors import MissingDependency
from contextrouter.testing.builders import interpreter_context

LATIN = ["de", "en", "es", "fr", "it", "ro", "tr", "vi"]
ALL = [*LATIN, "ar", "el", "he", "hi", "ja", "ko", "ru", "th", "uk", "zh"]

QUESTIONS = {
    "ar": ["كم يبعد القمر عن الأرض؟", "من كتب هذا الكتاب؟"],
    "de": ["Wie weit ist der Mond von der Erde entfernt?", "Warum schläft eine Katze so viel?"],
    "el": ["Πόσο απέχει η Σελήνη από τη Γη;", "Πού είναι το λιμάνι;"],
    "en": [
        "How far is the moon from here?",
        "why do cats sleep so much",
        "What does Москва mean in English?",
    ],
    "es": ["¿A qué distancia está la luna?", "¿Por qué duermen tanto los gatos?"],
    "fr": ["Pourquoi les chats dorment-ils autant ?", "Combien coûte un billet pour Lyon ?"],
    "he": ["מה המרחק של הירח מכדור הארץ?"],
    "hi": ["चाँद पृथ्वी से कितनी दूर है?", "बिल्लियाँ इतना क्यों सोती हैं?"],
    "it": ["Perché i gatti dormono così tanto?", "Quanto è lontana la luna dalla terra?"],
    "ja": ["東京の人口は何人ですか", "猫はなぜよく眠るのか"],
    "ko": ["달은 얼마나 멀리 있나요?"],
    "ro": ["De ce dorm pisicile atât de mult?", "Cât costă un bilet de tren?"],
    "ru": ["Как далеко находится луна от земли?", "Сколько стоит билет на поезд и где его купить?"],
    "th": ["ดวงจันทร์อยู่ไกลแค่ไหน"],
    "tr": ["Kediler neden bu kadar çok uyur?", "Ay dünyadan ne kadar uzakta?"],
    "uk": ["Скільки коштує квиток на потяг і де його купити?", "Що таке квантова механіка?"],
    "vi": ["Tại sao mèo ngủ nhiều như vậy?", "Mặt trăng cách đây bao xa?"],
    "zh": ["月亮离我们有多远?", "Kubernetes 是什么意思,怎么用?"],
}
NAMES = [
    "Barack Obama",
    "Johann Wolfgang von Goethe",
    "Leonardo da Vinci",
    "María José",
    "rio de janeiro",
    "Nguyen Van Anh",
]
CODES = ["ERR_CONNECTION_REFUSED", "HTTP 404", "0x80070005", "E1234", "ORA-12154", "SQLSTATE 42P01", "error code 0x80070057",
         "exit code 137", "java.lang.NullPointerException", "TypeError: 'NoneType' object"]  # fmt: skip
NUMBERS = ["42", "3.14159", "2026-01-31", "+49 30 123456", "192.168.0.1", "π", "???", "😀"]
PRODUCTS = ["iPhone 15 Pro Max", "iphone 15 pro max", "Samsung Galaxy S24 Ultra", "visual studio code", "PostgreSQL 16",
            "Sony WH-1000XM5", "adobe photoshop elements", "microsoft teams", "docker compose", "git rebase --onto",
            "config.yaml", "https://example.org/de/seite"]  # fmt: skip
LOAN_WORDS = [
    "kindergarten",
    "Schadenfreude",
    "sushi",
    "tsunami",
    "café",
    "doppelgänger",
    "déjà vu",
    "pizza margherita",
]
NOTHING = [*NAMES, *CODES, *NUMBERS, *PRODUCTS, *LOAN_WORDS]


async def told(interpreter: Language, question: str, language: str | None = None) -> str | None:
    intent = Intent(question=question, queries=(question,), language=language)
    return (await interpreter.interpret(intent, interpreter_context(Request(question=question)))).language


@pytest_asyncio.fixture
async def open_one(request: pytest.FixtureRequest) -> AsyncIterator[Language]:
    interpreter = Language(languages=request.param)
    await interpreter.open()
    yield interpreter
    await interpreter.aclose()


@pytest.mark.case("T01")
@pytest.mark.parametrize("open_one", [ALL], indirect=True)
async def test_the_language_of_a_question_is_told(open_one: Language) -> None:
    found = {(code, text): await told(open_one, text) for code, texts in QUESTIONS.items() for text in texts}
    assert {key: language for key, language in found.items() if language != key[0]} == {}


@pytest.mark.case("T01")
@pytest.mark.parametrize("open_one", [ALL, ["en", "de"], ["en", "el"]], ids=len, indirect=True)
async def test_what_says_nothing_has_no_language(open_one: Language) -> None:
    assert len(NOTHING) >= 40
    assert {text: language for text in NOTHING if (language := await told(open_one, text))} == {}


@pytest.mark.parametrize("open_one", [["en", "ru"]], indirect=True)
async def test_only_listed_languages_are_told(open_one: Language) -> None:
    assert await told(open_one, "Чому коти так багато сплять?") == "ru"
    assert await told(open_one, "月亮离我们有多远?") is None
    assert await told(open_one, "How far is the moon?") == "en"
    assert await told(open_one, "Что такое Docker Compose") == "ru"


async def test_a_language_that_is_set_stays_and_a_script_needs_no_detector() -> None:
    interpreter = Language(languages=["en", "de", "el"])
    assert await told(interpreter, "How far is the moon?", "la") == "la"
    assert await told(interpreter, "Πού είναι το λιμάνι;") == "el"


async def test_margin_and_minimum_keep_the_language_empty() -> None:
    for options in ({"margin": 1.0}, {"minimum": 100}):
        interpreter = Language(languages=["en", "de"], **options)
        await interpreter.open()
        assert await told(interpreter, "How far is the moon from here?") is None
        await interpreter.aclose()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"languages": []}, "languages is empty. List the languages"),
        ({"languages": "en"}, "languages 'en' is not a list of codes"),
        ({"languages": ["en", "ger"]}, "'ger' is no ISO 639-1 code"),
        ({"languages": ["en"], "minimum": 0}, "minimum 0 is no number of letters"),
        ({"languages": ["en"], "margin": 1.5}, "margin 1.5 is not between 0 and 1"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Language(**options)


async def test_a_language_that_nobody_can_tell_is_named_at_the_start() -> None:
    with pytest.raises(ValueError, match="languages: xx cannot be told"):
        await Language(languages=["en", "xx"]).open()


async def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(MissingDependency, match="Telling languages apart needs the extra 'language'"):
        await Language(languages=["en"]).open()
