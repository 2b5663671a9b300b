"""The network's own authority: what it issues, who can use that, and how it is replaced."""

from __future__ import annotations

import datetime
import socket
import ssl
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from tocsin.errors import OperatorError
from tocsin.runtime.security import authority as module
from tocsin.runtime.security.authority import Authority, Certificate
from tocsin.runtime.security.credentials import (
    Credentials,
    Identity,
    PeerTls,
    credentials_of,
    existing_credentials,
    identity_of,
    peer_of,
)
from tocsin.runtime.security.followed_files import AGAIN_S, Reminder


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "certs"


@pytest.fixture
def authority(directory: Path) -> Authority:
    return Authority.open_or_make(directory, "tocsin")


def shaken(server: PeerTls, client: PeerTls) -> tuple[Identity | None, Identity | None]:
    """Who each side has proven to be to the other: the client as the server saw it, then the server."""
    here, there = socket.socketpair()
    seen: list[Identity | None] = []

    def serve() -> None:
        try:
            with server.server.wrap_socket(there, server_side=True) as connection:
                seen.append(peer_of(connection))
                connection.sendall(b"!")
        except (ssl.SSLError, OSError):
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.client.wrap_socket(here) as connection:
            found = peer_of(connection)
            assert (
                connection.recv(1) == b"!"
            )  # in TLS 1.3 a refusal of our certificate shows with the first read
            return seen[0], found
    finally:
        thread.join()


def certificate_of(authority: Authority, name: str) -> Certificate:
    return next(each for each in authority.certificates() if each.identity.name == name)


def test_two_processes_of_a_network_prove_who_they_are(authority: Authority) -> None:
    north = PeerTls(authority.ensure("north-1", role="broker", hosts=["127.0.0.1"]))
    south = PeerTls(authority.ensure("south-1", role="broker"))
    assert shaken(north, south) == (
        Identity("tocsin", "broker", "south-1"),
        Identity("tocsin", "broker", "north-1"),
    )


def test_a_certificate_of_another_authority_is_believed_by_neither_side(
    authority: Authority, tmp_path: Path
) -> None:
    own = PeerTls(authority.ensure("north-1", role="broker"))
    other = PeerTls(Authority.open_or_make(tmp_path / "other").ensure("north-1", role="broker"))
    for server, client in ((own, other), (other, own)):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shaken(server, client)


def test_keys_are_nobody_elses(authority: Authority, directory: Path) -> None:
    found = authority.ensure("north-1", role="broker")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for path in (found.key_path, directory / "authority.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_directory_that_others_could_read_is_closed_to_them(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    Authority.open_or_make(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_what_is_there_is_kept(authority: Authority, directory: Path) -> None:
    before = authority.ensure("north-1", role="broker", hosts=["127.0.0.1", "LocalHost"])
    content = before.certificate_path.read_bytes()
    again = Authority.open_or_make(directory)
    assert again.ensure("north-1", role="broker", hosts=["localhost"]) == before
    assert before.certificate_path.read_bytes() == content
    assert again.authorities() == authority.authorities()


def test_a_host_that_is_new_gets_a_new_certificate(authority: Authority) -> None:
    authority.ensure("north-1", role="broker", hosts=["127.0.0.1"])
    authority.ensure("north-1", role="broker", hosts=["127.0.0.1", "::1", "n.example.com"])
    assert certificate_of(authority, "north-1").hosts == ("127.0.0.1", "::1", "n.example.com")


def test_a_certificate_that_ends_soon_is_issued_anew(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority.ensure("north-1", role="broker", days=90)
    first = certificate_of(authority, "north-1")
    later = first.begins + datetime.timedelta(days=59)
    monkeypatch.setattr(module, "_now", lambda: later)
    authority.ensure("north-1", role="broker", days=90)
    assert certificate_of(authority, "north-1") == first
    monkeypatch.setattr(module, "_now", lambda: later + datetime.timedelta(days=2))
    authority.ensure("north-1", role="broker", days=90)
    assert certificate_of(authority, "north-1").ends > first.ends


def test_several_processes_may_start_at_once(directory: Path) -> None:
    def start(number: int) -> tuple[Credentials, tuple[object, ...]]:
        found = Authority.open_or_make(directory)
        return found.ensure("north-1", role="broker"), found.authorities()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(start, range(16)))
    assert len(set(map(str, found))) == 1
    PeerTls(found[0][0])  # key and certificate belong together


def test_an_authority_whose_maker_was_killed_is_made_whole(authority: Authority, directory: Path) -> None:
    before = authority.authorities()
    (directory / "authority.pem").unlink()
    assert Authority.open_or_make(directory).authorities() == before


@pytest.mark.parametrize("name", ["authority.pem", "authority.key"])
def test_a_damaged_file_is_named(authority: Authority, directory: Path, name: str) -> None:
    (directory / name).write_bytes(b"something else")
    with pytest.raises(OperatorError, match=name):
        Authority.open_or_make(directory)


@pytest.mark.parametrize(
    ("name", "role", "hosts", "days"),
    [
        ("North 1", "broker", (), 1),
        ("../x", "broker", (), 1),
        ("a", "king", (), 1),
        ("a", "broker", ("two words",), 1),
        ("a", "broker", (), 0),
        ("a", "broker", (), 10_000),
        ("a", "broker", tuple(f"h{number}" for number in range(65)), 1),
    ],
)
def test_what_makes_no_sense_is_refused(
    authority: Authority, name: str, role: str, hosts: tuple[str, ...], days: int
) -> None:
    with pytest.raises(OperatorError):
        authority.issue(name, role=role, hosts=hosts, days=days)
    assert authority.certificates() == ()


# ── other machines ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_certificate_for_another_machine_works_there(authority: Authority, tmp_path: Path) -> None:
    there = tmp_path / "there"
    authority.issue("south-1", role="broker", hosts=["s.example.com"], out=there)
    south = PeerTls(existing_credentials(there, "broker", "south-1"))
    north = PeerTls(authority.ensure("north-1", role="broker"))
    assert shaken(south, north)[1] == Identity("tocsin", "broker", "south-1")
    copy = certificate_of(authority, "south-1")
    assert copy.elsewhere and b"PRIVATE" not in copy.path.read_bytes()


def test_where_the_authoritys_key_is_not_nothing_is_issued(authority: Authority, tmp_path: Path) -> None:
    there = tmp_path / "there"
    authority.issue("south-1", role="broker", out=there)
    other = Authority.open_or_make(there)
    assert other.authorities() == authority.authorities()
    assert other.ensure("south-1", role="broker", hosts=["127.0.0.1"]).ca_path.parent == there
    with pytest.raises(OperatorError, match="key of the network's authority"):
        other.ensure("south-2", role="broker")


def test_who_has_no_certificate_is_told_how_to_get_one(directory: Path) -> None:
    with pytest.raises(OperatorError, match="tocsin certs issue broker north-1"):
        existing_credentials(directory, "broker", "north-1")


# ── rotation ────────────────────────────────────────────────────────────────────────────────────────────────


def test_new_keys_are_taken_up_by_who_runs(authority: Authority) -> None:
    north = PeerTls(authority.ensure("north-1", role="broker"))
    south = PeerTls(authority.ensure("south-1", role="broker"))
    before = certificate_of(authority, "north-1").fingerprint
    authority.reissue()
    assert certificate_of(authority, "north-1").fingerprint != before
    assert north.reload() and not north.reload()
    assert shaken(north, south) == shaken(north, south)


def test_an_authority_is_replaced_while_processes_run(authority: Authority) -> None:
    north = PeerTls(authority.ensure("north-1", role="broker"))
    south = PeerTls(authority.ensure("south-1", role="broker"))
    old = authority.authorities()
    authority.renew()
    assert authority.authorities()[1:] == old
    north.reload()
    shaken(north, south)  # one believes both, the other the old one only: certificates are the old one's
    assert len(authority.retire()) == 2 and len(authority.authorities()) == 2
    south.reload()
    authority.reissue()
    north.reload()
    shaken(north, south)
    shaken(south, north)
    south.reload()
    assert authority.retire() == () and len(authority.authorities()) == 1
    north.reload()
    south.reload()
    shaken(north, south)


def test_certificates_elsewhere_keep_the_old_authority(authority: Authority, tmp_path: Path) -> None:
    authority.issue("south-1", role="broker", out=tmp_path / "there")
    authority.renew()
    authority.reissue()
    assert [each.identity.name for each in authority.retire()] == ["south-1"]
    authority.issue("south-1", role="broker", out=tmp_path / "there")
    assert authority.retire() == ()


def test_one_replacement_at_a_time(authority: Authority) -> None:
    authority.renew()
    with pytest.raises(OperatorError, match="being replaced"):
        authority.renew()


def test_bad_files_leave_a_process_as_it_was(authority: Authority) -> None:
    found = authority.ensure("north-1", role="broker")
    north = PeerTls(found)
    good = found.certificate_path.read_bytes()
    found.certificate_path.write_bytes(b"nothing")
    with pytest.raises(OperatorError, match="cannot be used"):
        north.reload()
    assert not north.reload()  # complained about once
    south = PeerTls(authority.ensure("south-1", role="broker"))
    shaken(north, south)
    found.certificate_path.write_bytes(good)
    assert north.reload()


@pytest.mark.parametrize("days", [-10, 0])
def test_a_certificate_that_no_peer_would_believe_is_not_taken_up(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    found = authority.ensure("north-1", role="broker")
    north, south = PeerTls(found), PeerTls(authority.ensure("south-1", role="broker"))
    if days:  # it has ended
        long_ago = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        monkeypatch.setattr(module, "_now", lambda: long_ago)
        bad = authority.issue("north-1", role="broker", out=tmp_path / "out", days=1)
    else:  # it is of another authority
        bad = Authority.open_or_make(tmp_path / "other", "tocsin").ensure("north-1", role="broker")
    found.certificate_path.write_bytes(bad.certificate_path.read_bytes())
    with pytest.raises(OperatorError, match="is believed by no process"):
        north.reload()
    shaken(north, south)
    assert "is believed by no process" in (PeerTls(found).problem or ""), "who starts with it says so"


def test_a_new_authority_counts_also_where_the_certificate_is_the_old_ones(
    authority: Authority, tmp_path: Path
) -> None:
    found = authority.ensure("north-1", role="broker")
    north = PeerTls(found)
    assert north.problem is None
    other = Authority.open_or_make(tmp_path / "other", "tocsin").ensure("south-1", role="broker")
    found.ca_path.write_bytes(other.ca_path.read_bytes())
    assert north.reload() and "is believed by no process" in (north.problem or "")
    assert north.believed == PeerTls(other).believed, "the old one may have been stolen"


def test_a_certificate_that_ends_while_in_use_is_a_problem(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    north = PeerTls(authority.ensure("north-1", role="broker"))
    lasts_s = 10 * 366 * 86_400
    assert north.problem is None and " ends (" in (north.problem_within(lasts_s) or "")
    later_s = time.time() + lasts_s
    monkeypatch.setattr("tocsin.runtime.security.credentials.time.time", lambda: later_s)
    assert "broker-north-1.pem has ended" in (north.problem or "") and "tocsin certs" in (north.problem or "")


def test_a_problem_is_said_when_it_is_new_and_every_hour() -> None:
    reminder = Reminder("the certificate")
    with capture_logs() as logs:
        for now_s, problem in enumerate(("ends", "ends", "has ended", None, "ends")):
            reminder.remind(problem, now_s)
        reminder.remind("ends", 4 + AGAIN_S)
    assert [each["problem"] for each in logs] == ["ends", "has ended", "ends", "ends"]


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "uri",
    ["", "https://tocsin/broker/a", "tocsin://net/broker", "tocsin://net/broker/a/b", "tocsin:///broker/a",
     "tocsin://net/broker/a?x", "tocsin://net/broker/a#x", "TOCSIN://net/broker/a", "tocsin://[/broker/a"],
)  # fmt: skip
def test_other_uris_name_nobody(uri: str) -> None:
    assert identity_of(uri) is None


def test_a_certificate_passes_the_strict_checks_of_newer_pythons(authority: Authority) -> None:
    found = authority.ensure("north-1", role="broker", hosts=["127.0.0.1"])
    context = ssl.create_default_context(cafile=str(found.ca_path))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    here, there = socket.socketpair()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(found.certificate_path, found.key_path)

    def serve() -> None:
        with serving.wrap_socket(there, server_side=True):
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    with context.wrap_socket(here, server_hostname="127.0.0.1") as connection:
        assert peer_of(connection) == Identity("tocsin", "broker", "north-1")
    thread.join()


def test_the_certificate_in_the_file_is_the_one_that_is_listed(authority: Authority, directory: Path) -> None:
    authority.ensure("north-1", role="broker")
    path = credentials_of(directory, "broker", "north-1").certificate_path
    own = x509.load_pem_x509_certificate(path.read_bytes())
    assert certificate_of(authority, "north-1").ends == own.not_valid_after_utc
