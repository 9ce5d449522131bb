"""Keys of plugins whose types are pydantic's: one line for each mistake, masked secrets, a visible schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.example import CommandLine

from contextrouter import ContextRouter, SettingsError
from contextrouter.runtime.registry import Registry
from contextrouter.testing import judge, laws_of, subject_of

PLUGIN = '''
from typing import Annotated, Literal

from pydantic import BaseModel, Field, HttpUrl, SecretStr, field_validator

from contextrouter import Connector, Document, Hit
from contextrouter.testing import admits


class Queue(BaseModel):
    """One queue of tickets."""

    name: str
    weight: Annotated[float, Field(gt=0, le=10)] = 1.0


class Login(BaseModel):
    """Who asks the desk."""

    user: str
    pin: SecretStr
    realm: Literal["staff", "guest"] = "staff"


class Desk(BaseModel):
    """The server of the tickets."""

    url: HttpUrl
    login: Login
    retries: Annotated[int, Field(ge=0, le=5)] = 2
    queues: list[Queue] = []

    @field_validator("retries")
    @classmethod
    def even(cls, value: int) -> int:
        if value == 3:
            raise ValueError("Three retries bring bad luck. Give another number.")
        return value


class Tickets(Connector):
    """Answers from a ticket desk."""

    def __init__(self, *, desk: Desk, page: Annotated[int, Field(ge=1)] = 20, mark: str = "#") -> None:
        self.desk, self.page, self.mark = desk, page, mark

    @classmethod
    def example(cls):
        login = Login(user="a", pin=SecretStr("1234"))
        return cls(desk=Desk(url="http://127.0.0.1/", login=login))

    async def search(self, query):
        text = f"the sea of {self.desk.login.user}"
        rows = [Document(id=self.mark, content=text, url=str(self.desk.url))]
        return [Hit(document=row) for row in rows if admits(row, query)][: query.limit]
'''
HEAD = '[plugins]\npaths = ["p"]\n\n'  # three lines
GOOD = """[connectors.tickets]
page = 5

[connectors.tickets.desk]
url = "https://desk.example.org/"
retries = 4

[connectors.tickets.desk.login]
user = "ada"
pin = "${DESK_PIN}"

[[connectors.tickets.desk.queues]]
name = "billing"
"""
EIGHT = """[connectors.tickets]
page = 0

[connectors.tickets.desk]
url = "desk"
retries = "4"
retry = 1

[connectors.tickets.desk.login]
pin = 1234
realm = "admin"

[[connectors.tickets.desk.queues]]
name = "billing"

[[connectors.tickets.desk.queues]]
name = "sales"
weight = 11.0
"""


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DESK_PIN", "tell-nobody")
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "tickets.py").write_text(PLUGIN)
    (tmp_path / "settings.toml").write_text(HEAD + GOOD)
    return tmp_path


def problems(folder: Path, text: str) -> list[str]:
    (folder / "settings.toml").write_text(HEAD + text)
    with pytest.raises(SettingsError) as caught:
        ContextRouter.from_toml(folder / "settings.toml")
    return [str(problem) for problem in caught.value.problems]


async def test_a_constructor_gets_the_objects_of_pydantic(folder: Path):
    async with ContextRouter.from_toml(folder / "settings.toml") as router:
        plugin = router.instances.all["connector", "tickets"]
        context = await router.route("the sea")
    assert type(plugin.desk).__name__ == "Desk"
    assert plugin.desk.login.pin.get_secret_value() == "tell-nobody"
    assert (plugin.page, plugin.desk.retries, plugin.desk.queues[0].weight) == (5, 4, 1.0)
    assert context.envelopes[0].document.content == "the sea of ada"
    assert context.envelopes[0].document.url == "https://desk.example.org/"


def test_eight_mistakes_in_a_nested_table_are_eight_lines_with_their_places(folder: Path):
    desk = "connectors.tickets.desk"
    assert problems(folder, EIGHT) == [
        "settings.toml:5: connectors.tickets.page: input should be greater than or equal to 1, not 0.",
        f"settings.toml:8: {desk}.url: input should be a valid URL, relative URL without a base, not 'desk'.",
        f"settings.toml:9: {desk}.retries: input should be a valid integer, not '4'.",
        f"settings.toml:10: {desk}.retry: unknown key. Did you mean `retries`?"
        " Known keys: url, login, retries, queues.",
        f"settings.toml:12: {desk}.login: key 'user' is missing. Set it.",
        f"settings.toml:13: {desk}.login.pin: input should be a valid string.",
        f"settings.toml:14: {desk}.login.realm: input should be 'staff' or 'guest', not 'admin'.",
        f"settings.toml:21: {desk}.queues.1.weight: input should be less than or equal to 10, not 11.0.",
    ]


def test_what_a_validator_says_stands_in_the_line(folder: Path):
    text = GOOD.replace("retries = 4", "retries = 3")
    assert problems(folder, text) == [
        "settings.toml:9: connectors.tickets.desk.retries: three retries bring bad luck. Give another number,"
        " not 3."
    ]


def test_a_whole_table_that_is_absent_is_one_line(folder: Path):
    assert problems(folder, "[connectors.tickets]\npage = 5\n") == [
        "settings.toml:4: connectors.tickets: key 'desk' is missing. Set it to a table."
    ]


def test_a_secret_is_never_shown(folder: Path, cli: CommandLine):
    """Neither where the settings are shown, nor in a message, whatever its key is called."""
    ran = cli("settings", "--json", cwd=folder)
    values = {value["key"]: value["value"] for value in json.loads(ran.out)}
    assert "tell-nobody" not in ran.out + ran.err
    assert values["connectors.tickets.desk.login.pin"] == "***"
    text = GOOD.replace('user = "ada"', "user = 5").replace("${DESK_PIN}", "7-is-my-pin")
    assert "7-is-my-pin" not in " ".join(problems(folder, text))


def test_settings_show_every_key_of_a_model_with_its_origin(folder: Path, cli: CommandLine):
    values = {value["key"]: value for value in json.loads(cli("settings", "--json", cwd=folder).out)}
    desk = {
        key.removeprefix("connectors.tickets."): (value["value"], value["origin"])
        for key, value in values.items()
        if key.startswith("connectors.tickets.desk") or key.endswith((".page", ".mark"))
    }
    assert desk == {
        "page": (5, "settings.toml:5"),
        "mark": ("#", "default"),
        "desk.url": ("https://desk.example.org/", "settings.toml:8"),
        "desk.login.user": ("ada", "settings.toml:12"),
        "desk.login.pin": ("***", "settings.toml:13"),
        "desk.login.realm": ("staff", "default"),
        "desk.retries": (4, "settings.toml:9"),
        "desk.queues": ([{"name": "billing"}], "settings.toml:15"),
    }


def test_show_describes_every_key_of_a_model(folder: Path, cli: CommandLine):
    (shown,) = json.loads(cli("plugins", "show", "tickets", "--json", cwd=folder).out)
    rows = {row["key"]: (row["type"], row["required"], row["default"]) for row in shown["keys"]}
    assert rows == {
        "desk.url": ("URL", True, None),
        "desk.login.user": ("string", True, None),
        "desk.login.pin": ("secret", True, None),
        "desk.login.realm": ("'staff' | 'guest'", False, "staff"),
        "desk.retries": ("integer, from 0, to 5", False, 2),
        "desk.queues": ("list of table", False, []),
        "page": ("integer, from 1", False, 20),
        "mark": ("string", False, "#"),
    }
    assert cli("plugins", "show", "tickets").code == 0


def test_another_secret_is_another_answer_in_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch):
    before = ContextRouter.from_toml(folder / "settings.toml").settings.fingerprint
    monkeypatch.setenv("DESK_PIN", "tell-everybody")
    assert ContextRouter.from_toml(folder / "settings.toml").settings.fingerprint != before


def test_an_environment_variable_sets_a_key_of_a_model(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CONTEXTROUTER_CONNECTORS__TICKETS__DESK__RETRIES", "9")
    with pytest.raises(SettingsError) as caught:
        ContextRouter.from_toml(folder / "settings.toml")
    (problem,) = caught.value.problems
    assert problem.file == "environment variable CONTEXTROUTER_CONNECTORS__TICKETS__DESK__RETRIES"
    assert problem.message == "input should be less than or equal to 5, not 9."


@pytest.mark.parametrize(
    "law",
    [
        "example_works",
        "keywords_are_typed_for_toml",
        "unknown_keyword_is_refused",
        "module_imports_nothing_heavy",
    ],
)
def test_the_kit_takes_a_plugin_with_pydantic_options(folder: Path, law: str):
    cls = Registry([folder / "p"]).load("connector", "tickets")
    (finding,) = [judge(subject_of(cls), each) for each in laws_of(cls) if each.name == law]
    assert finding.status == "ok", finding.why


def test_plain_annotations_load_no_pydantic(tmp_path: Path):
    (tmp_path / "plain.py").write_text(
        "from contextrouter import Connector\n\nclass Plain(Connector):\n"
        "    def __init__(self, *, names: list[str], depth: int = 3) -> None:\n        pass\n\n"
        "    async def search(self, query):\n        return []\n"
    )
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.plain]\nnames = ["a"]\n')
    code = (
        "import sys, contextrouter as c; c.ContextRouter.from_toml('settings.toml');"
        " print([m for m in ('pydantic', 'annotated_types') if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr
