"""MQTT.js, the client of web pages and Node, over TCP and over WebSocket."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration.running import up
from tests.unit.broker.web import WebDoor
from tocsin.client import AsyncClient
from tocsin.config import Limits
from tocsin.runtime.security.tls import client_context

MQTTJS = "mqtt@5.16.0"
SCRIPT = Path(__file__).with_name("mqttjs.cjs")
INSTALL_DEADLINE_S = 90.0
DEADLINE_S = 60.0


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of node modules with MQTT.js in it, installed once for all processes of a test run."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing: install Node.js with npm to test with MQTT.js")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    directory = shared / "mqttjs"
    with (shared / "mqttjs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "done").exists():
            _install(npm, directory)
            (directory / "done").touch()
    return directory / "node_modules"


def _trusting() -> dict[str, str]:
    """Our environment, in which npm trusts whom this machine trusts, and not only whom Node.js knows."""
    trusted = Path("/etc/ssl/certs/ca-certificates.crt")
    extra = {"NODE_EXTRA_CA_CERTS": str(trusted)} if trusted.exists() else {}
    return {**extra, **os.environ}


def _install(npm: str, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    try:
        subprocess.run(
            [npm, "install", "--prefix", str(directory), *quiet, MQTTJS],
            check=True,
            timeout=INSTALL_DEADLINE_S,
            capture_output=True,
            text=True,
            env=_trusting(),
        )
    except subprocess.TimeoutExpired:
        pytest.skip(
            f"npm did not install {MQTTJS} within {INSTALL_DEADLINE_S:g} s: is its registry reachable?"
        )
    except subprocess.CalledProcessError as error:
        pytest.skip(f"npm could not install {MQTTJS}: {error.stderr.strip()[-300:]}")


@pytest.fixture
async def door() -> AsyncIterator[WebDoor]:
    async with WebDoor(Limits()) as opened:
        yield opened


async def run(node: str, modules: Path, url: str, level: str, qos: str, **variables: str) -> object:
    """What the script says of one client at this address."""
    process = await asyncio.create_subprocess_exec(
        node, str(SCRIPT), url, level, qos, f"js-{level}-{qos}",
        env={**os.environ, "NODE_PATH": str(modules), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(DEADLINE_S):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(output)


@pytest.mark.parametrize("qos", ["0", "1", "2"])
@pytest.mark.parametrize("level", ["5", "4"])
@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
async def test_what_mqttjs_publishes_comes_back_whole_and_in_order(
    door: WebDoor, modules: Path, debian_program: Callable[[str, str], str], scheme: str, level: str, qos: str
) -> None:
    node = debian_program("node", "nodejs")
    url = f"mqtt://127.0.0.1:{door.port}" if scheme == "mqtt" else f"ws://127.0.0.1:{door.web_port}/mqtt"
    assert await run(node, modules, url, level, qos) == {"heard": 203, "right": True}


async def test_a_burst_beyond_the_receive_maximum_is_read_slowly(
    modules: Path, debian_program: Callable[[str, str], str]
) -> None:
    node = debian_program("node", "nodejs")
    async with WebDoor(Limits(receive_max=20)) as door:
        url = f"ws://127.0.0.1:{door.web_port}"  # without a path
        told = await run(node, modules, url, "5", "1", IN_FLIGHT="5000", MORE="1800")
    assert told == {"heard": 2_003, "right": True}


async def test_a_web_page_connects_over_websocket_and_tls(
    modules: Path, debian_program: Callable[[str, str], str], tmp_path: Path
) -> None:
    node = debian_program("node", "nodejs")
    authority = Authority(debian_program("openssl", "openssl"), tmp_path)
    made = authority.sign("localhost")
    brokers = json.dumps([{"id": "a", "cluster": "c", "wss_port": 0}])
    files = ("--set", f"tls.certificate={made.certificate}", "--set", f"tls.key={made.key}")
    with up("--set", f"brokers={brokers}", *files) as line:
        port = line["brokers"][0]["wss_port"]
        url, believed = f"wss://localhost:{port}/mqtt", str(authority.certificate)
        told = await run(node, modules, url, "5", "1", NODE_EXTRA_CA_CERTS=believed)
        assert told == {"heard": 203, "right": True}
        async with AsyncClient(url, tls=client_context(authorities=believed)) as client:
            subscription = await client.subscribe("a")
            await client.publish("a", b"x")
            assert (await subscription.get(DEADLINE_S)).payload == b"x"
