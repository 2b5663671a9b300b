"""Sources of settings: a file or none, and options."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tocsin.cli.setting_options import FILE_MAX_BYTES, network_settings, process_settings, read
from tocsin.errors import OperatorError, SettingError
from tocsin.runtime.network.directory import BrokerAddress, NetworkFile


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_of_this_directory_is_read_if_there_is_one(alone: Path) -> None:
    assert read(None, None).origins["nats.port"] == "default"
    (alone / "tocsin.toml").write_text("[nats]\nport = 4333\n")
    assert read(None, None).origins["nats.port"] == "tocsin.toml"


def test_a_named_file_is_read_instead(alone: Path) -> None:
    (alone / "tocsin.toml").write_text("nonsense")
    (alone / "other.toml").write_text("[nats]\nport = 4333\n")
    assert read(Path("other.toml"), None).settings.nats.port == 4333


def test_options_beat_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_NATS__PORT", "4333")
    monkeypatch.setenv("TOCSIN_STATE", "x")
    loaded = read(None, ["nats.port=4444"], "here")
    assert (loaded.settings.nats.port, loaded.settings.state) == (4444, "here")


def test_a_value_may_hold_an_equals_sign() -> None:
    assert read(None, ["nats.token=a=b"]).settings.nats.token == "a=b"


@pytest.mark.parametrize("text", ["nats.port", "", "=3"])
def test_an_option_that_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(SettingError) as caught:
        read(None, [text])
    assert caught.value.key == "--set"


def test_a_secret_in_an_option_that_is_no_pair_is_not_repeated() -> None:
    with pytest.raises(SettingError) as caught:
        read(None, ["nats.token:hush"])
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("none.toml", None, "there is no such file"),
        ("binary.toml", b"\xff\xfe", "not text in UTF-8"),
        ("large.toml", b"#" * (FILE_MAX_BYTES + 1), "larger than 1 MiB"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(
    alone: Path, name: str, data: bytes | None, reason: str
) -> None:
    if data is not None:
        (alone / name).write_bytes(data)
    with pytest.raises(OperatorError) as caught:
        read(Path(name), None)
    assert reason in caught.value.problem and "-c FILE" in caught.value.remedy


def test_a_directory_is_no_settings_file(alone: Path) -> None:
    with pytest.raises(OperatorError, match="is a directory"):
        read(alone, None)


def test_a_process_started_by_hand_takes_the_keys_of_the_state_directory(alone: Path) -> None:
    found = process_settings(None, None, str(alone)).nats
    assert found.credentials == str(alone / "nats" / "keys" / "{role}.nk")
    assert found.ca == str(alone / "certs" / "authority.pem") and found.tls_handshake == "first"
    given = process_settings(None, ["nats.credentials=/etc/{role}.nk"], str(alone)).nats
    assert given.credentials == "/etc/{role}.nk"
    others = process_settings(None, ["nats.urls=nats://a:1", "nats.token=given"], str(alone)).nats
    assert (others.token, others.credentials, others.ca) == ("given", "", "")


def test_who_asks_a_network_finds_it_where_it_was_started(alone: Path) -> None:
    assert network_settings(None, None, str(alone)) == process_settings(None, None, str(alone))
    brokers = (BrokerAddress("west-1", "west", "edge", "127.0.0.1", 5001),)
    file = NetworkFile("town", 1, ("nats://127.0.0.1:5000",), brokers, storage="/kept")
    (alone / "network.json").write_bytes(msgspec.json.encode(file))
    found = network_settings(None, None, str(alone))
    assert (found.network, found.nats.addresses()) == ("town", ("nats://127.0.0.1:5000",))
    assert [each.id for each in found.brokers] == ["west-1"] and found.pipeline.storage == "/kept"


def test_servers_and_storage_that_are_named_are_those(alone: Path) -> None:
    file = NetworkFile("town", 1, ("nats://127.0.0.1:5000",), (), storage="/kept")
    (alone / "network.json").write_bytes(msgspec.json.encode(file))
    assert network_settings(None, ["nats.urls=nats://a:1"], str(alone)).nats.addresses() == ("nats://a:1",)
    assert network_settings(None, ["pipeline.storage=/mine"], str(alone)).pipeline.storage == "/mine"
