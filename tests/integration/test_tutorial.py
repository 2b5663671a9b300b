"""The tutorial about emergencies: its SQL is the example's, and its very commands do what it says."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.running import Heard, read_line
from tests.integration.tutorial import DOCS, blocks

for package in ("pyspark", "deltalake", "sqlglot"):
    pytest.importorskip(package, reason="install the extra tocsin[spark]")

PAGE = DOCS / "tutorial" / "emergency.md"
EXAMPLE = DOCS / "examples" / "emergency.sql"
DEADLINE_S = 240.0
AWAY = "6. Be away"  # where Alice's client is stopped, by hand
NOT_RUN = ("make setup", ".venv/bin/tocsin doctor")  # the tests run in what was set up
UP = (
    "--auto-ports",
    *(
        word
        for each in ("spark.master=local[2]", "spark.heap=1g", "spark.ui_port=-1")
        for word in ("--set", each)
    ),
    *("--set", "log.level=warning"),
)


def statements(text: str) -> str:
    """SQL without comments, with single spaces."""
    return " ".join(re.sub(r"--[^\n]*", "", text).split())


def test_the_sql_of_the_page_is_the_examples_and_compiles() -> None:
    from tocsin.model.catalogue import Definition
    from tocsin.pipeline.language.checks.statements import check
    from tocsin.pipeline.language.text.script import read_script
    from tocsin.pipeline.language.text.statements import CreateChannel, CreateDataset, CreateFeed

    shown = "\n".join(line for block in blocks(PAGE) if block.kind == "sql" for line in block.lines)
    text = EXAMPLE.read_text()
    assert statements(shown) == statements(text)
    known: list[Definition] = []
    for statement in read_script(text):
        check(statement, known, text)
        assert isinstance(statement, CreateDataset | CreateFeed | CreateChannel)
        match statement:
            case CreateDataset(dataset=made):
                known.append(made)
            case CreateFeed(feed=fed):
                known.append(fed)
            case CreateChannel(channel=channel):
                known.append(channel)
    assert [each.name for each in known] == [
        "UserLocations",
        "Emergencies",
        "Shelters",
        "Moves",
        "Reports",
        "EmergenciesNearMe",
    ]


def test_what_the_page_names_is_there() -> None:
    for path in set(re.findall(r"docs/examples/[\w.]+", PAGE.read_text())):
        assert (DOCS.parent / path).is_file(), path


class Reader:
    """Somebody who follows the page: a command after the other, in a directory of their own."""

    def __init__(self, directory: Path, ready: dict[str, Any]) -> None:
        self._directory = directory
        self._ports = [each["port"] for each in ready["brokers"]]
        self._parent = psutil.Process(ready["pids"]["store-1"]).parent()
        self.alice: Heard | None = None
        self.seen = 0  # lines of Alice's client that were looked at
        self.command, self.said = "", ""  # the last one, and what it said

    def run(self, command: str) -> None:
        command = re.sub(r"-p 188([3-8])\b", lambda found: f"-p {self._ports[int(found[1]) - 3]}", command)
        if command == "kill -9 PID":
            command = f"kill -9 {self._pipeline()}"
        if command.startswith("mosquitto_sub"):
            assert self.alice is None, "one terminal has one client"
            self.alice, self.seen = Heard(shlex.split(command)), 0
            return
        done = subprocess.run(
            command, shell=True, cwd=self._directory, capture_output=True, text=True, timeout=DEADLINE_S
        )
        self.command, self.said = command, done.stdout + done.stderr

    def _pipeline(self) -> int:
        assert self._parent is not None
        (found,) = [each.pid for each in self._parent.children() if each.cmdline()[-1:] == ["pipeline"]]
        return found

    def stop_alice(self) -> None:
        assert self.alice is not None
        self.alice.process.send_signal(signal.SIGINT)
        self.alice.stop()
        self.alice = None

    def hear(self, lines: tuple[str, ...]) -> None:
        """Wait for what Alice's client is to print next."""
        assert self.alice is not None
        alice, upto = self.alice, self.seen + len(lines)
        wait_for(lambda: len(alice.lines) >= upto, f"{lines}, and not {alice.lines}")
        assert [json.loads(line) for line in alice.lines[self.seen : upto]] == list(map(json.loads, lines))
        self.seen = upto


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S:g} s"
        time.sleep(0.1)


@contextlib.contextmanager
def started(directory: Path, command: str) -> Iterator[dict[str, Any]]:
    """``tocsin up`` as the page has it, beside whatever else runs here."""
    process = subprocess.Popen(
        [*shlex.split(command), *UP], cwd=directory, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        yield json.loads(read_line(process.stdout))
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("networks with spark")
def test_the_commands_of_the_page_do_what_it_says(
    tmp_path: Path, debian_program: Callable[[str, str], str]
) -> None:
    debian_program("mosquitto_sub", "mosquitto-clients")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "docs").symlink_to(DOCS)
    page = [block for block in blocks(PAGE) if block.kind != "sql"]
    assert {block.kind for block in page} == {"sh", "text", "json"}
    commands = [line for block in page if block.kind == "sh" for line in block.lines]
    (up,) = [each for each in commands if each.endswith("tocsin up")]
    with started(tmp_path, up) as ready:
        reader = Reader(tmp_path, ready)
        for section, inside in itertools.groupby(page, lambda block: block.section):
            if section == AWAY:
                reader.stop_alice()
            for block in inside:
                if block.kind == "json":
                    reader.hear(block.lines)
                elif block.kind == "text":
                    check_output(reader, block.lines)
                else:
                    for line in block.lines:
                        if line != up and line not in NOT_RUN:
                            reader.run(line)
        assert reader.alice is not None
        time.sleep(12)  # one more execution: whatever came twice would be there
        assert len(reader.alice.lines) == reader.seen, "something came twice"
        reader.stop_alice()
        check_history(reader)


def check_output(reader: Reader, lines: tuple[str, ...]) -> None:
    """What the last command is to say. What asks for a record may ask too early, and is asked again."""
    command = reader.command

    def as_said() -> bool:
        if all(line in reader.said for line in lines):
            return True
        assert "quarantine" in command, reader.said
        reader.run(command)
        return False

    wait_for(as_said, f"{lines} of {command}")


def check_history(reader: Reader) -> None:
    """What the page says in words: five emergencies, four results, each once."""
    reader.run(
        ".venv/bin/tocsin sql -o json -c 'SELECT COUNT(*) AS n, COUNT(DISTINCT id) AS ids FROM Emergencies'"
    )
    assert json.loads(reader.said) == {"n": 5, "ids": 5}
    reader.run(".venv/bin/tocsin sql -o json -c 'SELECT id FROM RESULTS OF EmergenciesNearMe ORDER BY id'")
    assert [json.loads(line)["id"] for line in reader.said.splitlines()] == ["f1", "f3", "w1", "w2"]
