"""The files in `deploy/`: the dashboard, the image, and the services of `compose.yaml`."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import tomli
import typer
import yaml
from support import postgres_server
from support.example import CommandLine

from contextrouter.cli.app import make_app
from contextrouter.runtime.registry import Registry
from contextrouter.server.listening.worker_process import LAST_SECONDS
from contextrouter.server.metrics import Metrics
from contextrouter.server.worker_share import Worker
from contextrouter.settings.loading import load

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
ENVIRONMENT = {
    "DATABASE_URL": "postgresql://postgres",
    "REDIS_URL": "redis://redis",
    "CACHE_SECRET": "of-the-test",
    "OWNER_KEY_HASH": "sha256:" + 64 * "0",
}


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


def dockerfile() -> dict[str, list[str]]:
    """Instruction -> what stands behind it, each time, with continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    instructions: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            instructions.setdefault(name, []).append(rest)
    return instructions


def test_the_dashboard_shows_every_metric_and_no_other():
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    names = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            names |= set(re.findall(r"contextrouter_\w+", target["expr"]))
    text = Metrics(Worker(number=1)).text().decode()
    families = dict(re.findall(r"(?m)^# TYPE (\w+) (\w+)$", text))
    served = {
        f"{name}_bucket" if kind == "histogram" else name
        for name, kind in families.items()
        if not name.endswith("_created")
    }
    assert len(served) == 12
    assert names == served
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def options_of(arguments: list[str]) -> set[str]:
    """The options of the command that these arguments of `contextrouter` name."""
    group: Any = typer.main.get_command(make_app())
    command = group.commands[arguments[0]]
    return {name for parameter in command.params for name in parameter.opts}


def test_the_image_runs_a_command_of_this_package_as_a_user_without_rights():
    instructions, project = dockerfile(), tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    (entry,) = json.loads(instructions["ENTRYPOINT"][0])
    assert entry in project["scripts"]
    command = json.loads(instructions["CMD"][0])
    assert command[1] in options_of(command)
    assert instructions["USER"] == ["10001"]
    assert "--uid 10001" in " ".join(instructions["RUN"])
    extras = re.search(r"'\.\[([\w,-]+)\]'", instructions["RUN"][0])
    assert extras is not None
    assert set(extras[1].split(",")) <= project["optional-dependencies"].keys()
    check = json.loads(instructions["HEALTHCHECK"][0].partition("CMD ")[2])
    compile(check[2], "HEALTHCHECK", "exec")
    assert "/healthz" in check[2]


def test_services_publish_nothing_to_other_machines_and_drop_their_rights():
    services = compose()["services"]
    assert [port for service in services.values() for port in service.get("ports", ())] == [
        "127.0.0.1:8080:8080"
    ]
    for name, service in services.items():
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged")
    for name in ("server", "ingest"):
        assert (services[name]["read_only"], services[name]["cap_drop"]) == (True, ["ALL"])
        assert {each["condition"] for each in services[name]["depends_on"].values()} == {"service_healthy"}
        command = services[name]["command"]
        assert command[1] in options_of(command)
    for name in ("postgres", "redis"):
        assert services[name]["healthcheck"]["test"][0] == "CMD-SHELL"


def test_every_secret_comes_from_the_environment_and_has_a_line_in_the_example():
    text = (DEPLOY / "compose.yaml").read_text()
    variables = set(re.findall(r"(?<!\$)\$\{(\w+)", text))
    example = dict(re.findall(r"(?m)^(\w+)=(.*)$", (DEPLOY / "example.env").read_text()))
    assert variables == example.keys()
    wanted = set(re.findall(r"\$\{(\w+)\}", (DEPLOY / "settings.toml").read_text()))
    assert wanted == compose()["services"]["server"]["environment"].keys()
    assert "deploy/.env" in (ROOT / ".gitignore").read_text().splitlines()
    assert "deploy/.env" in (ROOT / ".dockerignore").read_text().splitlines()


def test_a_container_has_longer_to_stop_than_the_server_needs():
    serve = load(DEPLOY / "settings.toml", Registry, environ=ENVIRONMENT)[0].serve
    grace = int(compose()["services"]["server"]["stop_grace_period"].removesuffix("s"))
    assert grace > serve.drain_delay + serve.drain_seconds + LAST_SECONDS


def test_the_settings_of_compose_ingest_and_pass_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "otter.md").write_text("# Otter\n\nAn otter swims.\n")
    text = (DEPLOY / "settings.toml").read_text()
    file = tmp_path / "settings.toml"
    text = text.replace('"/documents"', '"documents"')
    file.write_text(text.replace("dsn =", f'schema = "{postgres_server.schema()}"\ndsn ='))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        redis = f"redis://:pw@127.0.0.1:{free.getsockname()[1]}/0"  # a cache that is not there is no error
    environment = {**ENVIRONMENT, "DATABASE_URL": postgres_server.uri(), "REDIS_URL": redis}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run = CommandLine(monkeypatch, capsys)
    ingested = run("ingest", "--settings", str(file))
    assert ingested.code == 0, ingested
    checked = run("check", "--settings", str(file))
    assert checked.code == 0, checked
