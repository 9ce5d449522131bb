"""Secrets: masked wherever a message, a setting or a trace shows what was configured."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import engine_of
from support.example import CommandLine

from contextrouter import (
    ContextRouter,
    Intent,
    Interpreter,
    InterpreterContext,
    PluginError,
    Request,
    SettingsError,
)
from contextrouter.pipeline.interpretation import FAILED, interpret
from contextrouter.runtime.masking import is_secret, mask
from contextrouter.runtime.registry import Registry
from contextrouter.settings import InterpreterKeys
from contextrouter.settings.loading import load
from contextrouter.testing import Fixed, Raising

VALUE = "hunter2-and-more"


@pytest.mark.parametrize(
    "name",
    "api_key X-Api-Key x-api-keys apiKey accessToken db_password dbpassword passwd pwd passphrase auth"
    " Authorization bearer sig X-Amz-Signature signature client_secret clientSecret credentials creds dsn"
    " set-cookie AWS_SECRET_ACCESS_KEY jwt".split(),
)
def test_a_name_that_says_secret_is_one_however_it_is_written(name: str):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", "author authority keywords monkey keyboard tokenizer passage compass design significant".split()
)
def test_a_name_that_only_holds_the_letters_is_none(name: str):
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("X-Api-Key: abc", "X-Api-Key: ***"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("sent bearer abcdefgh.ij to", "sent bearer *** to"),
        ("passphrase='my long phrase' next", "passphrase='***' next"),
        ('{"password": "a\\"b c", "n": 2}', '{"password": "***", "n": 2}'),
        ('{\\"secret\\": \\"a b\\", \\"z\\": 1}', '{\\"secret\\": \\"***\\", \\"z\\": 1}'),
        ("('x-api-key', 'abc'), ('accept', '*/*')", "('x-api-key', '***'), ('accept', '*/*')"),
        ("Server=x;Pwd=a,b;Port=1", "Server=x;Pwd=***;Port=1"),
        ("https://h/p?key=AA&x=1", "https://h/p?key=***&x=1"),
        ("https://h/p?x=1&key=AA", "https://h/p?x=1&key=***"),
        ("https://h/p?sig=a%3D&se=1", "https://h/p?sig=***&se=1"),
        ("https://h/p?X-Amz-Signature=00ff failed", "https://h/p?X-Amz-Signature=*** failed"),
        ("postgres://u:pa/ss@wo@rd@host:5432/db", "postgres://u:***@host:5432/db"),
        ("redis://:pw@host http://a:1 ftp://b:c@d", "redis://:***@host http://a:1 ftp://b:***@d"),
        ("connect(auth=('user', 'pw'))", "connect(auth=***))"),
        ("cookie: a=b; c=d", "cookie: ***"),
        ("error: token=abc, then (pwd: x)", "error: token=***, then (pwd: ***)"),
        ("the API key: sk-1 is wrong", "the API key: *** is wrong"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA",
            "-----BEGIN RSA PRIVATE KEY-----***-----END RSA",
        ),
        ('password="cut off here', 'password="***'),
        ("KeyError: 'name'", "KeyError: 'name'"),
        ("unknown key. Known keys: a, b; author: c", "unknown key. Known keys: a, b; author: c"),
        ("http://host:80/x and a@b.example", "http://host:80/x and a@b.example"),
    ],
)
def test_a_text_is_shown_without_the_values_of_secrets(text: str, masked: str):
    assert mask(text) == masked
    assert mask(masked) == masked


def test_known_secrets_are_found_as_urls_and_reprs_spell_them_and_the_longest_first():
    shown = mask(
        f"a p@ss/wörd b p%40ss%2Fw%C3%B6rd c {'p@ss/wörd'!a} d abcd1234 e abc",
        ["abcd", "abcd1234", "p@ss/wörd", "abc"],
    )
    assert shown == "a *** b *** c '***' d *** e abc"


@pytest.mark.parametrize(
    "part",
    [
        "a-",
        "password",
        "key='",
        "://a:",
        "bearer ",
        "auth: ",
        "secret=(",
        "key\\\\\\",
        "token ",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_a_long_text_made_to_be_slow_is_masked_in_proportion_to_its_length(part: str):
    """With a repetition that has no bound before the value, one of these takes minutes."""
    hostile = part * (100_000 // len(part))
    assert mask(f"password={VALUE} {hostile}").startswith("password=*** ")
    assert VALUE not in mask(f"{'x-' * 50_000}password={VALUE}")


async def test_a_source_s_error_is_masked_before_it_is_cut():
    error = ValueError("x" * 470 + f" password='{VALUE} {VALUE} {VALUE}'")
    async with ContextRouter({}, connectors={"bad": Raising(error), "good": Fixed()}) as router:
        context = await router.route("q")
    (report,) = {r.error for r in context.coverage if r.source == "bad"}
    assert report.endswith(" password='***'")


class Tells(Interpreter):
    def __init__(self, text: str) -> None:
        self.text = text

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        raise ValueError(self.text)


async def test_an_interpreter_s_failure_is_masked_in_the_intent_the_trace_and_the_error():
    said = f"the model refused {VALUE} and api_key='a b c'"
    settings = {"cache": {"secret": VALUE}}
    async with ContextRouter(
        settings, connectors={"a": Fixed()}, interpreters={"tells": Tells(said)}
    ) as router:
        context = await router.route("q")
    shown = "ValueError: the model refused *** and api_key='***'"
    assert context.intent.attributes[FAILED] == {"tells": shown}
    assert context.trace.steps[0].note == f"failed: tells: {shown}"
    with pytest.raises(PluginError) as caught:
        await interpret(
            Request(question="q"),
            engine_of(
                interpreters={"tells": Tells(said)},
                keys={"tells": InterpreterKeys(on_error="raise")},
                secrets=(VALUE,),
            ),
        )
    assert str(caught.value) == f"Interpreter 'tells' failed: {shown}."


NAMES = """
from contextrouter import Connector
class Names(Connector):
    def __init__(self, *, url: str = "", auth: dict[str, str] = {}) -> None:
        raise ValueError(f"cannot use {url} with {auth}")
    async def search(self, query):
        return []
"""


def test_a_constructor_s_error_is_masked(tmp_path: Path):
    (tmp_path / "names.py").write_text(NAMES)
    text = (
        f'[plugins]\npaths = ["."]\n[connectors.names]\nurl = "db://u:{VALUE}@h"\nauth = {{ user = "{VALUE}"'
        " }\n"
    )
    (tmp_path / "settings.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        ContextRouter.from_toml(tmp_path / "settings.toml")
    assert (
        str(caught.value) == "settings.toml:3: connectors.names: cannot use db://u:***@h with {'user': '***'}"
    )


def test_a_value_of_the_wrong_type_that_came_from_a_secret_is_masked(tmp_path: Path):
    (tmp_path / "settings.toml").write_text('[rag]\nmax_books = "${DB_PASSWORD}"\n')
    with pytest.raises(
        SettingsError, match=r"settings.toml:2: rag.max_books: expected `int`.*\*\*\*"
    ) as caught:
        load(tmp_path / "settings.toml", Registry, environ={"DB_PASSWORD": VALUE})
    assert VALUE not in str(caught.value)


LOOKS = """
from contextrouter import Connector
class Looks(Connector):
    def __init__(self, *, headers: dict[str, str] = {}, auth: dict[str, str] = {}, pwd: str = "", url: str = "") -> None:
        pass
    async def search(self, query):
        return []
"""


@pytest.mark.parametrize(
    "line",
    [
        'headers = {{ "X-Api-Key" = "{v}" }}',
        'headers = {{ authorization = "Bearer {v}" }}',
        'auth = {{ user = "{v}" }}',
        'pwd = "{v}"',
        'url = "https://h/?key={v}"',
        'url = "https://h/?a=1&sig={v}"',
        'url = "https://u:a/b@{v}@h/"',
    ],
)
def test_the_settings_command_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str
):
    (tmp_path / "looks.py").write_text(LOOKS)
    text = '[plugins]\npaths = ["."]\n[connectors.looks]\n' + line.format(v=VALUE) + "\n"
    (tmp_path / "settings.toml").write_text(text)
    cli = CommandLine(monkeypatch, capsys)
    for ran in (cli("settings", cwd=tmp_path), cli("settings", "--json")):
        assert ran.code == 0
        assert "***" in ran.out
        assert VALUE not in ran.out.replace("\n", "") + ran.err
