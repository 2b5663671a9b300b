"""``tocsin certs``."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from tocsin.cli.main import main
from tocsin.cli.verbs import certs
from tocsin.runtime.security import authority as module
from tocsin.runtime.security.authority import Authority
from tocsin.runtime.security.credentials import PeerTls, existing_credentials


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.setattr(certs, "TAKE_UP_S", 0.0)
    made = Authority.open_or_make(tmp_path / "certs")
    made.ensure("north-1", role="broker", hosts=["127.0.0.1"])
    made.ensure("store-1", role="store")
    return made


def run(authority: Authority, *words: str) -> int:
    return main(["certs", *words, "--state", str(authority.directory.parent)])


def listed(authority: Authority, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert run(authority, "list", "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_certificates_are_listed_for_people(authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(authority, "list") == 0
    shown = capsys.readouterr().out
    for word in ("authority", "north-1", "store-1", "127.0.0.1", "364 days"):
        assert word in shown


def test_certificates_are_listed_for_programs(
    authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    found = listed(authority, capsys)
    assert len(found["authorities"]) == 1
    (broker, store) = found["certificates"]
    assert (broker["role"], broker["name"], broker["hosts"]) == ("broker", "north-1", ["127.0.0.1"])
    assert broker["uri"] == "tocsin://tocsin/broker/north-1" and len(broker["fingerprint"]) == 64
    assert store["newest_authority"] and not store["elsewhere"]


def test_without_an_authority_nothing_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", "list", "--state", str(tmp_path)]) == 2
    assert "tocsin init" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_for_another_machine(authority: Authority, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(authority, "issue", "broker", "south-1", "--host", "s.example.org", "--out", str(out)) == 0
    PeerTls(existing_credentials(out, "broker", "south-1"))
    (copy,) = [each for each in authority.certificates() if each.elsewhere]
    assert copy.hosts == ("s.example.org",)
    assert run(authority, "forget", "broker", "south-1") == 0
    assert run(authority, "forget", "broker", "south-1") == 2


@pytest.mark.parametrize("words", [("king", "a"), ("broker", "A B")])
def test_what_makes_no_sense_is_refused(authority: Authority, words: tuple[str, ...]) -> None:
    assert run(authority, "issue", *words) == 2


def test_new_keys_for_all(authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    before = {each.fingerprint for each in authority.certificates()}
    assert run(authority, "rotate") == 0
    assert "2 certificates" in capsys.readouterr().out
    assert not before & {each.fingerprint for each in authority.certificates()}


def test_a_new_authority_in_one_go_on_one_machine(
    authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    before = authority.authorities()
    assert run(authority, "rotate", "--authority") == 0
    assert "believed no more" in capsys.readouterr().out
    assert len(authority.authorities()) == 1 and authority.authorities() != before
    assert all(each["newest_authority"] for each in listed(authority, capsys)["certificates"])


def test_a_new_authority_step_by_step_on_several(
    authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    issue = ("issue", "broker", "south-1", "--host", "s.example.org", "--out", str(tmp_path / "out"))
    assert run(authority, *issue) == 0
    assert run(authority, "rotate", "--authority") == 0
    told = capsys.readouterr().out
    assert "authority.pem" in told and "tocsin certs issue broker south-1 --host s.example.org" in told
    assert len(authority.authorities()) == 2
    assert run(authority, "rotate") == 0  # too soon: the other machine has its old certificate
    assert "stays" in capsys.readouterr().out and len(authority.authorities()) == 2
    assert run(authority, *issue) == 0
    assert run(authority, "rotate") == 0
    assert "believed no more" in capsys.readouterr().out and len(authority.authorities()) == 1


def test_only_what_ends_soon_is_renewed(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(authority, "renew") == 0
    assert "nothing ends soon" in capsys.readouterr().out
    authority.issue("north-1", role="broker", days=10)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=8)
    monkeypatch.setattr(module, "_now", lambda: later)
    assert run(authority, "renew") == 0
    assert "broker north-1" in (told := capsys.readouterr().out) and "store" not in told


def test_where_the_key_is_not_nothing_is_rotated(
    authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    (authority.directory / "authority.key").unlink()
    for words in (("rotate",), ("rotate", "--authority"), ("renew",), ("issue", "broker", "a")):
        assert run(authority, *words) == 2
        assert "not on this machine" in capsys.readouterr().err
