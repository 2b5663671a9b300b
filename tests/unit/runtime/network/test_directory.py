"""The state directory: one network at a time, a secret made once, files that are whole."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tocsin.errors import DirectoryUnusable, OperatorError, StateInUse
from tocsin.runtime.network import directory as directories
from tocsin.runtime.network.directory import (
    BrokerAddress,
    NetworkFile,
    StateDirectory,
    make_private,
    read_network,
)

NETWORK = NetworkFile(
    "tocsin", 7, ("nats://127.0.0.1:4222",), (BrokerAddress("a", "c", "edge", "127.0.0.1", 1883),)
)


def test_a_directory_is_made_and_private(tmp_path: Path) -> None:
    directory = StateDirectory.hold(tmp_path / "deep" / "state")
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert directory.logs.is_dir() and directory.nats.is_dir()
    directory.release()


def test_a_held_directory_is_refused_with_its_holder(tmp_path: Path) -> None:
    directory = StateDirectory.hold(tmp_path)
    assert StateDirectory.holder(tmp_path) == os.getpid()
    with pytest.raises(StateInUse) as caught:
        StateDirectory.hold(tmp_path)
    assert caught.value.pid == os.getpid()
    directory.release()
    assert StateDirectory.holder(tmp_path) == 0
    StateDirectory.hold(tmp_path).release()


def test_the_remains_of_a_dead_network_are_waited_for(tmp_path: Path) -> None:
    # A parent that ends at once, and a child with the lock that ends when its standard input does.
    script = """
import subprocess, sys
from pathlib import Path
from tocsin.runtime.network.directory import StateDirectory
held = StateDirectory.hold(Path(sys.argv[1]))
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read(1)"], pass_fds=[held.lock])
"""
    read_end, write_end = os.pipe()
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], stdin=read_end, check=True, timeout=60)
    os.close(read_end)
    assert StateDirectory.holder(tmp_path) != 0
    os.close(write_end)
    StateDirectory.hold(tmp_path).release()


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DirectoryUnusable) as caught:
            StateDirectory.hold(path)
        assert "--state DIR" in caught.value.remedy


def test_addresses_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_network(tmp_path) is None
    directory = StateDirectory.hold(tmp_path)
    (tmp_path / ".network.json.partial").write_text("from a crash")
    directory.write_network(NETWORK)
    assert read_network(tmp_path) == NETWORK
    assert not (tmp_path / ".network.json.partial").exists()
    directory.release()


@pytest.mark.parametrize("text", ["", "{}", "no json", '{"network": 1}'])
def test_a_file_of_addresses_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "network.json").write_text(text)
    with pytest.raises(OperatorError) as caught:
        read_network(tmp_path)
    assert caught.value.remedy == "Delete it"


def test_an_address_names_every_way_in() -> None:
    address = BrokerAddress("a", "c", "edge", "::1", 1883, tls_port=8883, ws_port=8080, wss_port=8443)
    assert address.urls() == (
        "[::1]:1883",
        "mqtts://[::1]:8883",
        "ws://[::1]:8080/mqtt",
        "wss://[::1]:8443/mqtt",
    )
    assert NETWORK.brokers[0].urls() == ("127.0.0.1:1883",)


def test_a_holder_that_ended_as_a_zombie_does_not_count_as_running(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    while psutil.Process(ended.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert not directories._alive(ended.pid)
    ended.wait()
    assert not directories._alive(ended.pid)
    assert directories._alive(os.getpid())


@pytest.mark.parametrize(
    ("before", "keep_group", "after"),
    [
        (None, False, 0o700),
        (0o755, False, 0o700),
        (0o775, True, 0o770),
        (0o700, True, 0o700),
    ],
)
def test_a_private_directory_is_closed_also_if_it_was_there(
    tmp_path: Path, before: int | None, keep_group: bool, after: int
) -> None:
    path = tmp_path / "x" / "y"
    if before is not None:
        path.mkdir(parents=True)
        path.chmod(before)
    make_private(path, keep_group=keep_group)
    assert path.stat().st_mode & 0o777 == after
