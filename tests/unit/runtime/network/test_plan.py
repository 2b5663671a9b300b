"""Which processes a network is made of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tocsin.config import Bridge, Broker, Chaos, Door, Feeds, Nats, Pipeline, Settings, from_json
from tocsin.errors import OperatorError, ProgramMissing
from tocsin.runtime import extra
from tocsin.runtime.network import plan as network
from tocsin.runtime.network.directory import FeederAddress, StateDirectory
from tocsin.runtime.network.store_access import security
from tocsin.runtime.process import SETTINGS
from tocsin.store.nats.login import login_of
from tocsin.store.servers.roles import ROLES

BROKERS = (Broker(id="a", cluster="c", host="0.0.0.0"), Broker(id="b", cluster="c", role="routing"))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    held = StateDirectory.hold(tmp_path / "state")
    yield held
    held.release()


@pytest.fixture
def settings(directory: StateDirectory) -> Settings:
    chosen = Settings(
        brokers=BROKERS, nats=Nats(port=0), door=Door(port=0), pipeline=Pipeline(enabled="never")
    )
    prepared = network.prepare(chosen, directory, auto_ports=False)
    security(prepared)  # makes the keys
    return prepared


def test_settings_become_those_of_this_machine(settings: Settings, directory: StateDirectory) -> None:
    assert settings.state == str(directory.path)
    assert settings.nats.token == "" and settings.nats.tls_handshake == "first"
    assert login_of(settings.nats, "broker").seed != login_of(settings.nats, "operator").seed
    assert settings.nats.port and all(broker.port for broker in settings.brokers)


def test_its_processes_let_themselves_be_cut_off_unless_that_is_forbidden(directory: StateDirectory) -> None:
    for given, settled in (("auto", "always"), ("always", "always"), ("never", "never")):
        chosen = Settings(
            brokers=BROKERS, nats=Nats(port=0), chaos=msgspec.convert({"enabled": given}, Chaos)
        )
        assert network.prepare(chosen, directory, auto_ports=True).chaos.enabled == settled


def test_embedded_servers_take_no_token_and_the_old_one_goes(directory: StateDirectory) -> None:
    given = Settings(brokers=BROKERS, nats=Nats(port=0, token="given"))
    with pytest.raises(OperatorError, match=r"Leave nats\.token out"):
        network.prepare(given, directory, auto_ports=True)
    (directory.path / "token").write_text("of an older version")
    network.prepare(Settings(brokers=BROKERS, nats=Nats(port=0)), directory, auto_ports=True)
    assert not (directory.path / "token").exists()


def test_a_missing_program_is_found_before_anything_starts(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOCSIN_NATS_SERVER", "/none")
    with pytest.raises(ProgramMissing):
        network.prepare(Settings(brokers=BROKERS), directory, auto_ports=True)


def test_the_store_comes_before_the_coordinator_before_the_brokers(
    settings: Settings, directory: StateDirectory
) -> None:
    plans = network.plans(settings, directory)
    assert [(plan.child.name, plan.child.stage, plan.child.reports) for plan in plans] == [
        ("store-1", 0, False),
        ("coordinator-1", 1, True),
        ("broker/a", 2, True),
        ("broker/b", 2, True),
    ]
    assert plans[0].ready is not None and not plans[0].handover
    assert all(from_json(SETTINGS.open(plan.handover)) == settings for plan in plans[1:])


def test_no_command_holds_the_secret(settings: Settings, directory: StateDirectory) -> None:
    for plan in network.plans(settings, directory):
        for role in ROLES:
            assert login_of(settings.nats, role).seed not in " ".join(plan.argv)


def test_servers_that_run_elsewhere_are_not_started(settings: Settings, directory: StateDirectory) -> None:
    elsewhere = msgspec.structs.replace(settings, nats=Nats(urls=("nats://db:4222",)))
    names = [plan.child.name for plan in network.plans(elsewhere, directory)]
    assert names == ["coordinator-1", "broker/a", "broker/b"]


def test_there_are_as_many_coordinators_as_the_settings_say(
    settings: Settings, directory: StateDirectory
) -> None:
    plans = network.plans(msgspec.structs.replace(settings, coordinators=3), directory)
    coordinators = [plan for plan in plans if plan.child.stage == network.COORDINATOR_STAGE]
    assert [plan.child.name for plan in coordinators] == ["coordinator-1", "coordinator-2", "coordinator-3"]
    assert [plan.argv[-3:] for plan in coordinators[1:]] == [
        ("coordinator", "--id", "coordinator-2"),
        ("coordinator", "--id", "coordinator-3"),
    ]


def test_clients_are_told_addresses_that_they_can_reach(settings: Settings) -> None:
    file = network.addresses(settings)
    assert file.pid == os.getpid()
    assert [(broker.id, broker.host) for broker in file.brokers] == [("a", "127.0.0.1"), ("b", "127.0.0.1")]
    assert file.nats == settings.nats.addresses()
    assert file.feeder is None


def installed(monkeypatch: pytest.MonkeyPatch, package: str | None) -> None:
    """A machine on which this package of the extra is missing."""
    monkeypatch.setattr(extra, "missing", lambda: package)


def test_with_spark_the_pipeline_needs_only_the_store_and_delays_nobody(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, None)
    chosen = Settings(brokers=BROKERS, nats=Nats(port=0), door=Door(port=0), feeds=Feeds(http_port=0))
    settings = network.prepare(chosen, directory, auto_ports=False)
    plans = network.plans(settings, directory)
    assert [(plan.child.name, plan.child.stage) for plan in plans if not plan.child.awaited] == [
        ("pipeline", network.STORE_STAGE + 1),
        ("feeder", network.BROKER_STAGE + 1),
    ]
    assert [plan.argv[-1] for plan in plans[-2:]] == ["pipeline", "feeder"]
    assert all(from_json(SETTINGS.open(plan.handover)) == settings for plan in plans[-2:])
    file = network.addresses(settings)
    assert file.feeder == FeederAddress("127.0.0.1", settings.feeds.http_port)
    assert file.storage == str(directory.path / "datasets")


def test_without_spark_there_is_no_pipeline_unless_requested(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, "pyspark")
    chosen = Settings(brokers=BROKERS, nats=Nats(port=0), door=Door(port=0))
    settings = network.prepare(chosen, directory, auto_ports=False)
    assert all(plan.child.awaited for plan in network.plans(settings, directory))
    asked = msgspec.structs.replace(chosen, pipeline=Pipeline(enabled="always"))
    with pytest.raises(ProgramMissing) as caught:
        network.prepare(asked, directory, auto_ports=False)
    assert "pyspark" in caught.value.problem and "tocsin[spark]" in caught.value.remedy


def test_a_bridge_starts_last_and_gets_a_password_only_for_its_user(
    settings: Settings, directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOCSIN_PASSWORD", "s3cret")
    broker = settings.brokers[0].id
    bridges = Bridge(name="one", broker=broker), Bridge(name="two", broker=broker, user="plant")
    made = network.plans(msgspec.structs.replace(settings, bridges=bridges), directory)[-2:]
    assert [each.child.name for each in made] == ["bridge/one", "bridge/two"]
    assert not any(each.child.awaited for each in made)
    assert [dict(each.variables) for each in made] == [{}, {"TOCSIN_PASSWORD": "s3cret"}]
    assert made[1].argv[-2:] == ("--user", "plant") and made[0].handover
