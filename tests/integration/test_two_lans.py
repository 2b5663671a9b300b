"""The tutorial about two local networks: what it names is there, and its commands do what it says."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.tutorial import DOCS

PAGE = DOCS / "tutorial" / "two-lans.md"
ROOT = DOCS.parent
DEADLINE_S = 60.0
BLOCK = re.compile(r"^```\n# terminal (\d)\n(.*?)^```$", re.M | re.S)


def test_what_the_page_names_is_there() -> None:
    text = PAGE.read_text()
    named = set(re.findall(r"docs/examples/[\w.-]+", text))
    assert len(named) >= 4
    for path in named:
        assert (ROOT / path).is_file(), path
    assert os.access(ROOT / "docs/examples/two-lans", os.X_OK)
    assert "tutorial/two-lans.md" in (ROOT / "mkdocs.yml").read_text()
    assert len(BLOCK.findall(text)) >= 12


class Terminals:
    """Somebody who types the page's commands. What goes on stays in its terminal."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._commands = [
            (int(terminal), line)
            for terminal, lines in BLOCK.findall(PAGE.read_text())
            for line in lines.splitlines()
        ]

    def next(self, part: str) -> tuple[int, str]:
        terminal, line = self._commands.pop(0)
        assert part in line, f"the page goes on with {line!r}"
        return terminal, line

    def start(self, part: str) -> Path:
        """Type the next command, and leave it running; where its output goes."""
        terminal, line = self.next(part)
        output = self._folder / f"terminal-{terminal}-{len(self._running)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                line, shell=True, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._running.append((line, process))
        return output

    def run(self, part: str) -> str:
        """Type the next command, and read what it says."""
        _, line = self.next(part)
        done = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
        return done.stdout + done.stderr

    def skip(self, part: str) -> None:
        self.next(part)

    def close(self) -> None:
        for _, process in reversed(self._running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
                try:
                    process.wait(DEADLINE_S)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
        subprocess.run(["docs/examples/two-lans", "down"], cwd=ROOT, capture_output=True, check=False)


@pytest.fixture
def terminals(tmp_path: Path, debian_program: Callable[[str, str], str]) -> Iterator[Terminals]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip (Debian: iproute2)")
    if subprocess.run(["ip", "netns", "add", "tocsin-probe"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel lets nobody make network namespaces")
    subprocess.run(["ip", "netns", "delete", "tocsin-probe"], check=True)
    if (ROOT / ".tocsin" / "nats").exists():
        pytest.skip("the network of this checkout has a state: run this where there is none")
    debian_program("mosquitto_sub", "mosquitto-clients")
    made = Terminals(tmp_path)
    yield made
    made.close()
    shutil.rmtree(ROOT / ".tocsin", ignore_errors=True)


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.2)


@pytest.mark.slow
def test_the_commands_of_the_page_do_what_it_says(terminals: Terminals) -> None:
    terminals.skip("make setup")
    terminals.run("two-lans up")
    assert "10.9.1.2/24" in terminals.run("in 1 ip")
    network = terminals.start("tocsin up")
    until(lambda: b'"event":"ready"' in network.read_bytes(), "the brokers")
    terminals.start("bridge dds --name lan-1")
    terminals.start("bridge dds --name lan-2")
    terminals.start("pump.py write")
    display = terminals.start("pump.py read")
    until(lambda: b"north " in display.read_bytes(), "the display")
    said = terminals.run("dds/Pump").splitlines()
    assert len(said) == 3 and all(
        re.fullmatch(r'dds/Pump {"name":"north","pressure":\d+}', each) for each in said
    )
    deadline = terminals.start("deadline=1s")
    time.sleep(1)  # until it is subscribed, as it takes a person to go to the next terminal
    terminals.run("offer.deadline")
    until(lambda: b'"total":2' in deadline.read_bytes(), "the missed deadline")
    terminals.start("lines.py")
    terminals.start("line/#")
    status = terminals.run("routing status")
    assert "cloud-1" in status and "cloud-2" in status and "cloud-3" not in status
    terminals.run("kill -9")
    assert "tier cloud" in terminals.run("routing status")
    terminals.start("broker cloud-3")
    again = terminals.next("routing status")[1]

    def slots() -> int:
        told = subprocess.run(again, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
        found = re.search(r"cloud-3 +cloud +(\d+)", told.stdout)
        return int(found[1]) if found else 0

    until(slots, "the third hub's first slots")
    pressures = [int(each.split()[1]) for each in display.read_text().splitlines()]
    assert all(one - other in (-1, 49) for one, other in itertools.pairwise(pressures))
    terminals.skip("two-lans down")
