"""Registration at brokers' entrances, over real sockets: with the client, and with packets that no client of ours
sends."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from argon2.exceptions import HashingError
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubscribePacket,
    TopicFilter,
    Will,
)

from tests.unit.broker.guarded import GuardedDoor, answer
from tests.unit.broker.harness import Peer, until
from tocsin.broker.entrance.registrar import ASKING_MAX
from tocsin.client.accounts import AsyncAccounts
from tocsin.config import Access, Settings
from tocsin.core.access.admission import Origin
from tocsin.errors import AccountRefused, AddressInvalid, BrokerUnreachable, StoreUnavailable
from tocsin.model.network import Scheme
from tocsin.runtime.security.users import set_password
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.mqtt.connect import V311

PASSWORD = "correct horse"
RULES = """
[[rules]]
allow = "both"
topics = ["home/%u/#"]
users = ["*"]
"""


class Brokers:
    """Two brokers of one network where strangers register."""

    def __init__(self, directory: Path, server: MemoryServer) -> None:
        self._directory = directory
        self.server = server

    def door(self, **access: Any) -> GuardedDoor:
        (self._directory / "registered.toml").write_text(RULES)
        chosen: dict[str, Any] = {"registration": "open", "anonymous": "never", **access}
        settings = Settings(
            state=str(self._directory / "state"),
            access=Access(registered_rules=str(self._directory / "registered.toml"), **chosen),
        )
        return GuardedDoor(settings, store=MemoryStore(self.server))

    def audit(self) -> list[dict[str, Any]]:
        lines = (self._directory / "state" / "audit" / "audit.log").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return Brokers(tmp_path, MemoryServer())


@pytest.fixture
async def door(brokers: Brokers) -> AsyncIterator[GuardedDoor]:
    async with brokers.door() as opened:
        await known(opened)
        yield opened


async def known(door: GuardedDoor) -> None:
    """Return once a door knows the accounts."""
    accounts = door.guard.accounts
    assert accounts is not None
    await until(lambda: accounts.ready)


def accounts_at(door: GuardedDoor) -> AsyncAccounts:
    return AsyncAccounts(f"mqtt://127.0.0.1:{door.port}")


async def log_in(door: GuardedDoor, name: str = "~ann", password: str = PASSWORD) -> int:
    return await answer(door, ConnectPacket("c", username=name, password=password.encode(), clean_start=True))


def asking(**said: Any) -> ConnectPacket:
    return ConnectPacket("c", username="$account", **{"clean_start": True, **said})


def request(payload: bytes, verb: str = "register", **said: Any) -> PublishPacket:
    said = {"qos": QoS.AT_LEAST_ONCE, "packet_id": 1, "response_topic": "r", **said}
    return PublishPacket(f"$account/{verb}", payload, **said)


async def said(peer: Peer) -> dict[str, Any]:
    """What a request was answered, behind its acknowledgement."""
    await peer.first(PubAckPacket)
    found: dict[str, Any] = msgspec.json.decode((await peer.first(PublishPacket)).payload)
    return found


# ── what it is for ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_stranger_registers_and_uses_the_account_at_every_broker(brokers: Brokers) -> None:
    async with brokers.door() as here, brokers.door() as there:
        await known(here)
        account = await accounts_at(here).register("ann", PASSWORD)
        assert (account.name, account.state) == ("~ann", "active")
        assert await log_in(here) == 0
        registered = there.guard.accounts
        assert registered is not None
        await until(lambda: registered.takes("ann"))
        assert await log_in(there) == 0
        assert await log_in(there, password="wrong") == 0x86
        assert await log_in(there, name="ann") == 0x86


async def test_whoever_registered_may_do_what_the_rules_for_it_say(brokers: Brokers) -> None:
    async with brokers.door() as door:  # which has no other rules: they would allow everything
        await known(door)
        await accounts_at(door).register("ann", PASSWORD)
        connect = ConnectPacket("c", username="~ann", password=PASSWORD.encode(), clean_start=True)
        peer = await door.peer(connect=connect)
        peer.send(PublishPacket("plant/secret", b"", qos=QoS.AT_LEAST_ONCE, packet_id=1))
        assert int((await peer.receive(PubAckPacket)).reason_code) == 0x87
        peer.send(PublishPacket("home/~ann/lamp", b"", qos=QoS.AT_LEAST_ONCE, packet_id=2))
        assert int((await peer.receive(PubAckPacket)).reason_code) in (0, 0x10)


async def test_a_new_password_and_a_removal_end_the_users_connections(brokers: Brokers) -> None:
    async with brokers.door() as here, brokers.door() as there:
        await known(here)
        await known(there)
        await accounts_at(here).register("ann", PASSWORD)
        for change in ("password", "removal"):
            secret = PASSWORD if change == "password" else "another password"
            connect = ConnectPacket(change, username="~ann", password=secret.encode(), clean_start=True)
            peer = await there.peer(connect=connect)
            if change == "password":
                await accounts_at(here).change_password("~ann", PASSWORD, "another password")
            else:
                await accounts_at(here).remove("ann", "another password")
            assert int((await peer.first(DisconnectPacket)).reason_code) == 0x87
        assert await log_in(there, password="another password") == 0x86


async def test_whoever_waits_for_approval_learns_it_with_the_right_password(brokers: Brokers) -> None:
    async with brokers.door(registration="approved") as door:
        await known(door)
        assert (await accounts_at(door).register("ann", PASSWORD)).state == "waiting"
        assert await log_in(door) == 0x87
        assert await log_in(door) == 0x87  # also when the password is remembered
        assert await log_in(door, password="wrong") == 0x86


async def test_a_user_of_the_file_is_not_touched_by_who_registers(brokers: Brokers, tmp_path: Path) -> None:
    set_password(tmp_path / "users", "ann", b"the operator's")
    async with brokers.door(users=str(tmp_path / "users")) as door:
        await known(door)
        await accounts_at(door).register("ann", PASSWORD)
        with pytest.raises(AccountRefused, match="wrong"):
            await accounts_at(door).remove("ann", "the operator's")
        assert await log_in(door, "ann", "the operator's") == 0
        assert await log_in(door, "ann", PASSWORD) == 0x86


async def test_the_audit_log_tells_who_registered_and_no_secret(brokers: Brokers) -> None:
    async with brokers.door() as door:
        await known(door)
        await accounts_at(door).register("ann", PASSWORD)
        with pytest.raises(AccountRefused):
            await accounts_at(door).register("ann", PASSWORD)
        lines = brokers.audit()
    assert [(each["action"], each["name"], each["outcome"]) for each in lines] == [
        ("register", "~ann", "done"),
        ("register", "~ann", "refused"),
    ]
    assert PASSWORD not in str(lines) and "argon2" not in str(lines)


# ── attacks ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_nobody_registers_where_it_is_off(tmp_path: Path) -> None:
    async with GuardedDoor(Settings(access=Access(anonymous="always"))) as door:
        peer = await door.peer(connect=asking(), accepted=False)
        refused = await peer.receive(ConnAckPacket)
        assert int(refused.reason_code) == 0x87 and "access.registration" in str(refused.reason_str)


@pytest.mark.parametrize("scheme", [Scheme.MQTT, Scheme.WS])
async def test_passwords_in_clear_text_from_elsewhere_are_refused(
    door: GuardedDoor, scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = Origin("192.0.2.7", scheme=scheme)
    monkeypatch.setattr(door.listener._authenticator, "origin", lambda *given: origin)
    peer = await door.peer(connect=asking(), accepted=False)
    refused = await peer.receive(ConnAckPacket)
    assert int(refused.reason_code) == 0x87 and "connect over TLS" in str(refused.reason_str)


def test_the_client_says_no_password_to_a_stranger_in_clear_text() -> None:
    with pytest.raises(AddressInvalid, match="clear text"):
        AsyncAccounts("mqtt://alerts.example.org:1883")


async def test_a_strangers_connection_does_nothing_else(door: GuardedDoor) -> None:
    for packet in (
        SubscribePacket(1, [TopicFilter("#")]),
        PublishPacket("home/x", b""),
        PublishPacket("$account/register", b"{}"),
        PublishPacket("home/x", b"", qos=QoS.EXACTLY_ONCE, packet_id=1),
    ):
        peer = await door.peer(connect=asking())
        peer.send(packet)
        assert int((await peer.receive(DisconnectPacket)).reason_code) == 0x82
    assert not door.listener.clients


async def test_a_strangers_connection_leaves_nothing_and_takes_no_id(door: GuardedDoor) -> None:
    assert await answer(door, asking(session_expiry_interval=60)) == 0x82
    assert await answer(door, asking(will=Will("home/x"))) == 0x82
    await accounts_at(door).register("ann", PASSWORD)
    connect = ConnectPacket("c", username="~ann", password=PASSWORD.encode(), clean_start=True)
    client = await door.peer(connect=connect)
    await door.peer(connect=asking())  # under the same client id
    client.send(PingReqPacket())
    await client.receive(PingRespPacket)


async def test_requests_that_are_too_large_or_make_no_sense_get_words(door: GuardedDoor) -> None:
    for payload in (b"x" * 100_000, b"\xff", b"{}", b'{"name": "ann", "password": "\xff"}'):
        peer = await door.peer(connect=asking())
        peer.send(request(payload))
        found = await said(peer)
        assert found["code"] == 0x99 and found["error"]


async def test_a_connection_asks_a_few_times_and_no_more(door: GuardedDoor) -> None:
    peer = await door.peer(connect=asking())
    for number in range(1, 18):
        peer.send(request(b"{}", packet_id=number))
    assert int((await peer.first(DisconnectPacket)).reason_code) == 0x97


async def test_a_client_of_mqtt_3_names_its_answers_topic_itself(door: GuardedDoor) -> None:
    peer = await door.peer(connect=asking(), version=V311)
    payload = msgspec.json.encode({"name": "ann", "password": PASSWORD, "reply": "me/answers"})
    peer.send(PublishPacket("$account/register", payload, qos=QoS.AT_LEAST_ONCE, packet_id=1))
    await peer.first(PubAckPacket)
    found = await peer.first(PublishPacket)
    assert found.topic == "me/answers"
    assert msgspec.json.decode(found.payload) == {"v": 1, "name": "~ann", "state": "active"}


async def test_a_request_that_names_no_topic_for_its_answer_is_done(door: GuardedDoor) -> None:
    peer = await door.peer(connect=asking())
    payload = msgspec.json.encode({"name": "ann", "password": PASSWORD, "reply": "a/#"})
    peer.send(request(payload, response_topic=None))
    await peer.first(PubAckPacket)
    registered = door.guard.accounts
    assert registered is not None
    await until(lambda: registered.takes("ann"))


async def test_a_request_nested_without_end_is_no_bug_of_ours(door: GuardedDoor) -> None:
    peer = await door.peer(connect=asking())
    peer.send(request(b'{"x":' + b"[" * 100_000, response_topic=None))
    peer.send(PingReqPacket())
    assert await peer.first(PingRespPacket)


async def test_a_stranger_who_leaves_at_once_does_no_harm(door: GuardedDoor) -> None:
    for number in range(10):
        peer = await door.peer(connect=asking())
        name = {"name": f"ann-{number}", "password": PASSWORD}
        peer.send(request(msgspec.json.encode(name)))
        await peer.writer.drain()
        peer.writer.close()
    registrar = door.parts.registrar
    assert registrar is not None
    await until(lambda: len(registrar.machine.accounts) == 10)
    await until(lambda: not registrar._clients and not len(registrar.machine))
    assert (await accounts_at(door).register("bob", PASSWORD)).state == "active"


async def test_one_address_does_not_keep_others_from_asking(
    door: GuardedDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = iter([*["192.0.2.7"] * ASKING_MAX, "192.0.2.8", "192.0.2.7"])
    monkeypatch.setattr(
        door.listener._authenticator, "origin", lambda *given: Origin(next(addresses), scheme=Scheme.MQTTS)
    )
    crowd = [await door.peer(connect=asking()) for _ in range(ASKING_MAX)]
    assert await answer(door, asking()) == 0
    assert int((await crowd[0].receive(DisconnectPacket)).reason_code) == 0x89


async def test_of_two_who_take_a_name_at_two_brokers_one_gets_it(brokers: Brokers) -> None:
    async with brokers.door() as here, brokers.door() as there:
        await known(here)
        await known(there)
        both = await asyncio.gather(
            accounts_at(here).register("ann", "the first password"),
            accounts_at(there).register("ann", "the second password"),
            return_exceptions=True,
        )
        refused = [each for each in both if isinstance(each, AccountRefused)]
        assert len(refused) == 1 and "cannot be had" in refused[0].reason
        await until(lambda: here.guard.accounts is not None and here.guard.accounts.takes("ann"))
        codes = {await log_in(here, password=f"the {each} password") for each in ("first", "second")}
        assert codes == {0, 0x86}


async def test_a_broker_that_cannot_write_to_the_store_says_so(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*given: object, **options: object) -> int:
        raise StoreUnavailable("put", "no server")

    async with brokers.door() as door:
        await known(door)
        await accounts_at(door).register("ann", PASSWORD)
        monkeypatch.setattr(door.parts._stored.accounts, "compare_and_set", unavailable)
        with pytest.raises(AccountRefused, match="store cannot be reached"):
            await accounts_at(door).register("bob", PASSWORD)
        assert await log_in(door) == 0  # whoever has an account goes on


async def test_a_door_that_is_not_there_is_said(brokers: Brokers) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(BrokerUnreachable):
        await AsyncAccounts(f"mqtt://127.0.0.1:{port}").register("ann", PASSWORD)


async def test_a_broker_without_memory_for_a_hash_says_so_and_goes_on(
    door: GuardedDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*given: object) -> str:
        raise HashingError("Memory allocation error")

    with monkeypatch.context() as patched:
        patched.setattr(door.guard.users, "hash", fail)
        with pytest.raises(AccountRefused, match="cannot hash"):
            await accounts_at(door).register("ann", PASSWORD)
    assert (await accounts_at(door).register("ann", PASSWORD)).state == "active"


async def test_those_whose_address_is_not_known_share_one_rate(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with brokers.door(registered_address_hourly=1) as door:
        await known(door)
        origin = Origin("", scheme=Scheme.MQTTS)
        monkeypatch.setattr(door.listener._authenticator, "origin", lambda *given: origin)
        await accounts_at(door).register("ann", PASSWORD)
        with pytest.raises(AccountRefused, match="your address"):
            await accounts_at(door).register("bob", PASSWORD)
