"""What Vertex costs and needs: nothing of Google's before `open()`, the extra, credentials, TLS, secrets."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import tomli
from google.auth.exceptions import RefreshError
from packaging.requirements import Requirement
from support.example import ROOT
from support.vertex import Step, listening

from contextrouter import Query
from contextrouter.builtin.embedders.vertex import VertexEmbedder
from contextrouter.builtin.generators.vertex import VertexGenerator
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.vertex import Vertex
from contextrouter.builtin.providers.vertex.collection_server import CollectionServer
from contextrouter.builtin.providers.vertex_index import VertexIndex
from contextrouter.builtin.providers.vertex_search import VertexSearch
from contextrouter.builtin.shared.google_cloud import cloud_connection
from contextrouter.builtin.shared.google_cloud.cloud_options import CloudOptions
from contextrouter.builtin.stages.vertex import VertexReranker
from contextrouter.errors import PluginError

# Installers of older packages make the empty modules `google` and `google.cloud` at the start of Python.
START = "import sys; start = {*sys.modules}"
GOOGLE = "sorted(n for n in {*sys.modules} - start if n.partition('.')[0] in ('google', 'grpc', 'proto'))"
BLOCKED = """
import asyncio, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("google", "grpc"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
"""


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "code",
    [
        "import contextrouter, contextrouter.ingest, contextrouter.testing",
        "from contextrouter.runtime.registry import Registry; Registry().list_plugins()",
        "from contextrouter.builtin.providers.vertex import Vertex; Vertex(collection='c')",
        "from contextrouter.builtin.generators.vertex import VertexGenerator; VertexGenerator.example()",
    ],
)
def test_nothing_of_google_is_loaded_before_open(code: str):
    assert python(f"{START}; {code}; print({GOOGLE})") == "[]"


def test_a_check_of_settings_without_vertex_loads_nothing_of_google(tmp_path: Path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "settings.toml").write_text('[connectors.notes]\nuse = "files"\npath = "notes"\n')
    code = (
        f"{START}\nfrom contextrouter.cli import main\n"
        f"sys.argv = ['contextrouter', 'check', '--settings', {str(tmp_path / 'settings.toml')!r}]\n"
        f"try:\n    main()\nexcept SystemExit as end:\n    print(end.code or 0, {GOOGLE})"
    )
    assert python(code).splitlines()[-1] == "0 []"


@pytest.mark.parametrize(
    "plugin",
    [
        "from contextrouter.builtin.providers.vertex import Vertex as P",
        "from contextrouter.builtin.providers.vertex_index import VertexIndex as P",
        "from contextrouter.builtin.providers.vertex_search import VertexSearch as P",
        "from contextrouter.builtin.embedders.vertex import VertexEmbedder as P",
        "from contextrouter.builtin.stages.vertex import VertexReranker as P",
        "from contextrouter.builtin.generators.vertex import VertexGenerator as P",
    ],
)
def test_without_the_extra_open_names_it(plugin: str):
    code = f"{BLOCKED}\n{plugin}\ntry:\n    asyncio.run(P.example().open())\nexcept Exception as e:\n    print(e)"
    assert python(code).endswith("needs the extra 'vertex': pip install 'contextrouter-rag[vertex]'.")


@pytest.mark.case("VTX-04")
def test_the_extra_takes_a_wide_range_of_versions_and_stands_alone():
    """A lower bound and no upper one, so that it can stand beside other clients of Google's."""
    extras = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    ranges = [Requirement(text) for text in extras["vertex"]]
    assert {each.name for each in ranges} >= {"google-cloud-aiplatform", "google-cloud-vectorsearch"}
    assert [
        str(each.specifier) for each in ranges if not re.fullmatch(r">=[\d.]+", str(each.specifier))
    ] == []
    assert [
        name for name, listed in extras.items() if name != "vertex" and "google" in " ".join(listed)
    ] == []
    assert [
        text for text in requires("contextrouter-rag") or () if "google" in text and "extra" not in text
    ] == []


# Hosts


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("", ("vectorsearch.googleapis.com:443", True)),
        ("other.example.org", ("other.example.org:443", True)),
        ("other.example.org:8443", ("other.example.org:8443", True)),
        ("127.0.0.1:9000", ("127.0.0.1:9000", False)),
        ("localhost:9000", ("localhost:9000", False)),
        ("[::1]:9000", ("[::1]:9000", False)),
        ("https://localhost:9000", ("localhost:9000", True)),
        ("127.0.0.1.example.org:80", ("127.0.0.1.example.org:80", True)),
    ],
)
def test_only_a_loopback_address_is_asked_without_tls_and_credentials(endpoint: str, address: Any):
    options = CloudOptions("p", "eu", "", endpoint, 1.0).check()
    assert options.address("vectorsearch.googleapis.com") == address


def test_each_service_has_its_host():
    keys = {"project": "p"}
    texts = Memory()
    hosts = {
        Vertex(collection="c", location="europe-west4", **keys): "vectorsearch.googleapis.com",
        VertexEmbedder(location="europe-west4", **keys): "europe-west4-aiplatform.googleapis.com",
        VertexGenerator(location="global", **keys): "aiplatform.googleapis.com",
        VertexSearch(engine="e", location="eu", **keys): "eu-discoveryengine.googleapis.com",
        VertexSearch(engine="e", **keys): "discoveryengine.googleapis.com",
        VertexReranker(**keys): "discoveryengine.googleapis.com",
    }
    assert {plugin: plugin._connection.service.host for plugin in hosts} == hosts
    index = VertexIndex(texts=texts, index_endpoint="1", deployed_index="d", location="us-east1", **keys)
    assert index._admin.service.host == "us-east1-aiplatform.googleapis.com"


# Credentials

PRIVATE = "-----BEGIN PRIVATE KEY-----\nMIItopsecret\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, r"cannot be read as credentials \(FileNotFoundError\)"),
        ("{", r"cannot be read as credentials \(JSONDecodeError\)"),
        ("[]", r"cannot be read as credentials \(TypeError\)"),
        ('{"type": ["magic"]}', "of the type \"\\['magic'\\]\". Known types"),
        ('{"type": "impersonated_service_account"}', r"do not work \(AttributeError: .*key.json\)"),
        ('{"type": "magic"}', "of the type 'magic'. Known types: service_account"),
        (json.dumps({"type": "service_account", "private_key": PRIVATE}), "the credentials do not work"),
        (
            json.dumps({"type": "authorized_user", "client_secret": "topsecret"}),
            "the credentials do not work",
        ),
    ],
)
async def test_a_credentials_file_that_is_wrong_is_named_and_never_shown(
    tmp_path: Path, content: str | None, problem: str
):
    path = tmp_path / "key.json"
    if content is not None:
        path.write_text(content)
    plugin = Vertex(collection="c", project="p", credentials_file=str(path))
    with pytest.raises(PluginError, match=problem) as caught:
        await plugin.open()
    assert "topsecret" not in "".join(
        map(str, (caught.value, caught.value.__cause__, caught.value.__context__))
    )
    await plugin.aclose()


async def test_a_key_in_place_of_a_file_is_not_shown():
    plugin = Vertex(collection="c", project="p", credentials_file='{"private_key": "topsecret"}')
    with pytest.raises(PluginError, match="credentials_file holds a key itself") as caught:
        await plugin.open()
    assert "topsecret" not in str(caught.value)


async def test_credentials_that_cannot_be_refreshed_say_how_to_renew_them(monkeypatch: pytest.MonkeyPatch):
    def refused(path: str) -> Any:
        raise RefreshError("invalid_grant: Token has been revoked. client_secret=topsecret")

    monkeypatch.setattr(cloud_connection, "load_credentials", refused)
    plugin = Vertex(collection="c", project="p")
    with pytest.raises(PluginError, match="gcloud auth application-default login") as caught:
        await plugin.open()
    assert "topsecret" not in str(caught.value)
    await plugin.aclose()


TLS = """
import asyncio, json, os, sys, trustme
from aiohttp import web
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import rsa
from support.vertex import Script, Step
from contextrouter import Query
from contextrouter.builtin.providers.vertex import Vertex
from contextrouter.builtin.providers.vertex.collection_server import CollectionServer
from contextrouter.errors import PluginError


async def main(folder):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(f"{folder}/ca.pem")
    os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = f"{folder}/ca.pem"
    own = authority.issue_cert("localhost")
    server, script = CollectionServer("c", 2), Script()
    server.interceptors = (script,)
    server.certificates = (own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes())
    port = await server.listen()
    valid, tokens = [True], []

    async def token(request):
        tokens.append(1)
        if not valid[0]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": "topsecret", "expires_in": 1 if len(tokens) > 1 else 3600})

    app = web.Application()
    app.router.add_post("/token", token)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    uri = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/token"
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()).decode()
    info = {"type": "service_account", "client_email": "a@b", "token_uri": uri, "private_key": pem,
            "private_key_id": "1", "project_id": "of-the-key"}
    with open(f"{folder}/key.json", "w") as file:
        json.dump(info, file)
    keys = {"collection": "c", "endpoint": f"https://localhost:{port}", "credentials_file": f"{folder}/key.json"}
    plugin = Vertex(**keys)
    await plugin.open()
    print("tokens before the first question", len(tokens))
    await plugin.search(Query(text="moon", leg="vector", vector=[1.0, 0.0]))
    print(script.seen[-1].metadata["authorization"], plugin._get_collection().name)
    await plugin.aclose()
    other = Vertex(**keys)
    await other.open()
    valid[0] = False
    await asyncio.sleep(1.1)
    try:
        await other.search(Query(text="moon", leg="vector", vector=[1.0, 0.0]))
    except PluginError as error:
        print(error)
    await other.aclose()
    try:
        await Vertex(**keys).open()
    except PluginError as error:
        print(error)
    await runner.cleanup()
    await server.aclose()

asyncio.run(main(sys.argv[1]))
"""


def test_over_tls_a_token_is_sent_and_a_failing_refresh_is_reported(tmp_path: Path):
    """The token is there before the first question, which would pay for it otherwise."""
    done = subprocess.run(
        [sys.executable, "-c", TLS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )
    assert done.returncode == 0, done.stderr
    first, second, *errors = done.stdout.splitlines()
    assert first == "tokens before the first question 1"
    assert second == "Bearer topsecret projects/of-the-key/locations/us-central1/collections/c"
    assert len(errors) == 2
    for error in errors:
        assert error.startswith("Vector Search was not asked: the credentials do not work")
        assert "Renew them: `gcloud" in error
        assert "topsecret" not in error


async def test_a_secret_in_the_words_of_a_service_is_masked():
    async with listening(CollectionServer("c", 2)) as (endpoint, script):
        plugin = Vertex(collection="c", project="p", endpoint=endpoint)
        await plugin.open()
        message = "refused: authorization: Bearer ya29.topsecret-and-long " + "x" * 400
        script.always = Step(status="PERMISSION_DENIED", message=message)
        with pytest.raises(PluginError) as caught:
            await plugin.search(Query(text="", leg="vector", vector=[1.0, 0.0]))
        await plugin.aclose()
    assert "topsecret" not in str(caught.value)
    assert len(str(caught.value)) < 700


async def test_after_close_the_loop_has_no_task_of_it():
    plugins = [Vertex.example(), VertexSearch.example(), VertexIndex.example(), VertexEmbedder.example()]
    for plugin in plugins:
        await plugin.open()
        await plugin.ping()
        await plugin.aclose()
    own = asyncio.current_task()
    assert [task for task in asyncio.all_tasks() if task is not own and "rpc" not in repr(task)] == []
