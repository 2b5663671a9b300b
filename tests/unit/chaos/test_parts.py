"""Signals reach the processes of the network, and no other that looks like them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.unit.chaos.fake import DEADLINE_S, Fake, network, wait_for
from tocsin.chaos.parts import Running, part_name
from tocsin.errors import OperatorError

STATE = Path("/srv/alerts")


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fake]:
    with network(tmp_path_factory.mktemp("chaos")) as found:
        yield found


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python -P -m tocsin broker north-1", "broker/north-1"),
        ("python -P -m tocsin coordinator --id coordinator-2", "coordinator-2"),
        ("python -P -m tocsin pipeline", "pipeline"),
        ("python -P -m tocsin feeder", "feeder"),
        ("/opt/nats-server -c /srv/alerts/nats/store-1/nats.conf", "store-1"),
        ("/opt/nats-server -c /srv/others/nats/store-1/nats.conf", ""),
        ("python -P -m tocsin up", ""),
        ("python -P -m tocsin broker", ""),
        ("python -c pass -P -m tocsin broker north-1", ""),
        ("grep tocsin broker", ""),
        ("", ""),
    ],
)
def test_a_part_is_known_by_its_command_line(words: str, name: str) -> None:
    assert part_name(words.split(), STATE) == name


def test_parts_are_found_and_decoys_are_not(fake: Fake) -> None:
    lookalike = subprocess.Popen(
        [sys.executable, "-P", "-m", "tocsin", "broker", "b1"],
        env={"PYTHONPATH": str(fake.state.parent / "stand-in")},
        stdout=subprocess.DEVNULL,
    )
    try:
        running = Running.find(fake.state)
        assert {part.name for part in running.parts} == set(fake.pids)
        children = running.children(tuple(fake.pids))
        assert {child.name: child.pid for child in children} == fake.pids
        assert lookalike.pid not in fake.pids.values() and fake.decoy not in fake.pids.values()
        for child in children:
            child.close()
    finally:
        lookalike.kill()
        lookalike.wait(DEADLINE_S)


def test_a_stopped_process_is_found_and_let_go(fake: Fake) -> None:
    running = Running.find(fake.state)
    assert running.stopped() == []
    (child,) = running.children(["broker/b2"])
    assert child.signal(signal.SIGSTOP)
    wait_for(child.pid, psutil.STATUS_STOPPED)
    (found,) = running.stopped()
    assert (found.name, found.pid) == ("broker/b2", child.pid)
    assert found.signal(signal.SIGCONT)
    found.close()
    child.close()


def test_whoever_has_ended_gets_no_signal(tmp_path: Path) -> None:
    with network(tmp_path) as own:
        running = Running.find(own.state)
        (child,) = running.children(["coordinator-1"])
        assert child.signal(signal.SIGKILL)
        wait_for(child.pid, psutil.STATUS_ZOMBIE)
        assert running.children(["coordinator-1"]) == [], "it waits to be fetched by its parent"
        child.close()
    assert not running.alive
    assert running.children(["broker/b1"]) == []
    with pytest.raises(OperatorError, match="no network runs on"):
        Running.find(own.state)


def test_where_nothing_runs_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="tocsin up"):
        Running.find(tmp_path / "nowhere")
