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

from tests.unit.broker.web import WebDoor
from tocsin.config import Limits

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


@pytest.mark.parametrize("qos", ["0", "1", "2"])
@pytest.mark.parametrize("level", ["5", "4"])
@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
async def test_what_mqttjs_publishes_comes_back_whole_and_in_order(
    door: WebDoor, modules: Path, debian_program: Callable[[str, str], str], scheme: str, level: str, qos: str
) -> None:
    node = debian_program("node", "nodejs")
    url = f"mqtt://127.0.0.1:{door.port}" if scheme == "mqtt" else f"ws://127.0.0.1:{door.web_port}/mqtt"
    process = await asyncio.create_subprocess_exec(
        node, str(SCRIPT), url, level, qos, f"js-{scheme}-{level}-{qos}",
        env={**os.environ, "NODE_PATH": str(modules)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(DEADLINE_S):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert json.loads(output) == {"heard": 203, "right": True}
