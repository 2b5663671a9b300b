"""Log-in at a broker's entrance, and what a user may do then, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    Will,
)

from tests.unit.broker.guarded import GuardedDoor, answer
from tests.unit.broker.harness import Door, until
from tocsin.broker.entrance.listener import Listener
from tocsin.config import Access, Limits, Settings
from tocsin.core.access.admission import Origin
from tocsin.core.access.rights import Access as Rules
from tocsin.core.access.rules import parse_rules
from tocsin.model.publication import Publication
from tocsin.runtime.security.files import Changed
from tocsin.runtime.security.users import Users, remove_user, set_password
from tocsin.wire.internal.replication import Bequest
from tocsin.wire.mqtt.connect import V5, V311, Version

RULES = """
[[rules]]
allow = "both"
topics = ["home/%u/#"]
users = ["*"]
"""


@pytest.fixture
def users(tmp_path: Path) -> Path:
    set_password(tmp_path / "users", "bob", b"builder")
    set_password(tmp_path / "users", "eve", b"apple")
    return tmp_path / "users"


# ── passwords ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [V5, V311])
async def test_a_user_comes_in_with_the_right_password_only(users: Path, version: Version) -> None:
    settings = Settings(access=Access(users=str(users), anonymous="never"))
    async with GuardedDoor(settings) as door:
        for _ in range(2):  # the second time from memory
            good = ConnectPacket("c", username="bob", password=b"builder", clean_start=True)
            assert await answer(door, good, version) == 0
            wrong = ConnectPacket("c", username="bob", password=b"apple", clean_start=True)
            assert await answer(door, wrong, version) == 0x86
        nobody = ConnectPacket("c", username="carol", password=b"builder", clean_start=True)
        assert await answer(door, nobody, version) == 0x86
        assert await answer(door, ConnectPacket("c", clean_start=True), version) == 0x87
        assert door.listener.refused == 4


async def test_what_is_sent_behind_the_connect_waits_for_the_password(users: Path) -> None:
    async with GuardedDoor(Settings(access=Access(users=str(users)))) as door:
        watcher = await door.peer("watcher")
        await watcher.subscribe(TopicFilter("a"))
        hasty = await door.peer(
            connect=ConnectPacket("hasty", username="bob", password=b"builder"), accepted=False
        )
        hasty.send(PublishPacket("a", b"early"))
        assert (await watcher.receive(PublishPacket)).payload == b"early"


async def test_a_client_that_leaves_while_its_password_is_checked_is_forgotten(users: Path) -> None:
    async with GuardedDoor(Settings(access=Access(users=str(users)))) as door:
        peer = await door.peer(
            connect=ConnectPacket("gone", username="bob", password=b"builder"), accepted=False
        )
        peer.writer.transport.abort()
        await until(lambda: not door.listener._connections)
        assert door.listener.clients == 0 and not door.listener._authenticator._checks


@pytest.mark.parametrize("expiry_s", [0, 60])
async def test_a_client_gone_when_its_password_is_proven_is_not_let_in(
    users: Path, monkeypatch: pytest.MonkeyPatch, expiry_s: int
) -> None:
    """Also if its end was read in the same turn of the loop: else the client that it was elsewhere is thrown out."""
    proven = asyncio.Event()

    async def verify(self: Users, name: str, password: bytes, address: str = "") -> bool:
        await proven.wait()
        return True

    monkeypatch.setattr(Users, "verify", verify)
    let_in: list[str] = []
    monkeypatch.setattr(Listener, "accept", lambda self, _, accepted: let_in.append(accepted.client_id))
    async with GuardedDoor(Settings(access=Access(users=str(users)))) as door:
        bob = ConnectPacket(
            "gone", clean_start=True, username="bob", password=b"x", session_expiry_interval=expiry_s
        )
        await door.peer(connect=bob, accepted=False)
        await until(lambda: len(door.listener._authenticator._checks) == 1)
        (connection,) = door.listener._authenticator._checks
        assert connection._transport is not None
        proven.set()
        connection._transport.close()  # as the loop does when the peer has ended
        await until(lambda: not door.listener._connections)
        assert let_in == []


async def test_a_client_that_proves_no_name_has_none(users: Path) -> None:
    async with GuardedDoor(Settings(access=Access(users=str(users)))) as door:
        await door.peer("c")
        (connection,) = door.listener._clients.values()
        assert door.listener.register.who(connection).user == ""


async def test_nobody_takes_the_client_id_of_another_user(users: Path) -> None:
    async with GuardedDoor(Settings(access=Access(users=str(users)))) as door:
        await door.peer("same")
        bob = ConnectPacket("same", username="bob", password=b"builder", clean_start=True)
        await door.peer(connect=bob)
        eve = ConnectPacket("same", username="eve", password=b"apple", clean_start=True)
        assert await answer(door, eve) == 0x85
        assert await answer(door, ConnectPacket("same", clean_start=True)) == 0x85
        await door.peer(connect=bob)
        assert door.listener.clients == 1


async def test_a_removed_user_is_disconnected(users: Path) -> None:
    async with GuardedDoor(Settings(access=Access(users=str(users)))) as door:
        bob = await door.peer(connect=ConnectPacket("b", username="bob", password=b"builder"))
        await door.peer(connect=ConnectPacket("e", username="eve", password=b"apple"))
        remove_user(users, "bob")
        goodbye = await bob.receive(DisconnectPacket)  # the guard looks every second
        assert int(goodbye.reason_code) == 0x87
        await until(lambda: door.listener.clients == 1)
        again = ConnectPacket("b", username="bob", password=b"builder")
        assert await answer(door, again) == 0x86


async def test_a_broker_that_filled_up_while_a_password_was_checked_says_so(users: Path) -> None:
    settings = Settings(access=Access(users=str(users)), limits=Limits(connections_max=1))
    async with GuardedDoor(settings) as door:
        slow = await door.peer(
            connect=ConnectPacket("s", username="bob", password=b"builder"), accepted=False
        )
        await until(lambda: len(door.listener._authenticator._checks) == 1)
        await door.peer("quick")
        assert int((await slow.receive(ConnAckPacket)).reason_code) == 0x89


# ── rights ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_rights_follow_the_rules(users: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    await asyncio.to_thread(rules.write_text, RULES)
    async with GuardedDoor(Settings(access=Access(users=str(users), rules=str(rules)))) as door:
        await door.peer(connect=ConnectPacket("c", username="bob", password=b"builder"))
        await door.peer("unnamed")
        listener = door.listener
        bob, unnamed = listener._clients["c"], listener._clients["unnamed"]
        assert listener.register.rights(bob).may_publish("home/bob/x")
        assert not listener.register.rights(bob).may_publish("home/eve/x")
        assert not listener.register.rights(unnamed).may_subscribe("#")
        await asyncio.to_thread(rules.write_text, RULES.replace("home", "office"))
        await until(lambda: door.changes == 1)
        assert listener.register.rights(bob).may_publish("office/bob/x")
        assert not listener.register.rights(bob).may_publish("home/bob/x")


OPEN_BUT_FOR_PRIVATE = """
[[rules]]
deny = "both"
topics = ["private/#"]
users = ["anonymous"]

[[rules]]
allow = "both"
topics = ["#"]
"""


@asynccontextmanager
async def ruled(users: Path, text: str = OPEN_BUT_FOR_PRIVATE) -> AsyncIterator[GuardedDoor]:
    rules = users.with_name("rules")
    await asyncio.to_thread(rules.write_text, text)
    async with GuardedDoor(Settings(access=Access(users=str(users), rules=str(rules)))) as door:
        yield door


BOB = ConnectPacket("bob", username="bob", password=b"builder", clean_start=True)


@pytest.mark.parametrize("qos", [QoS.AT_MOST_ONCE, QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE])
async def test_no_filter_brings_what_may_not_be_received(users: Path, qos: QoS) -> None:
    async with ruled(users) as door:
        bob, outsider = await door.peer(connect=BOB), await door.peer("outsider")
        bob.send(
            PublishPacket("private/kept", b"no", retain=True), PublishPacket("kept", b"yes", retain=True)
        )
        await until(lambda: len(door.parts.retained) == 2)
        await outsider.subscribe(TopicFilter("#", max_qos=qos), TopicFilter("+/now", max_qos=qos))
        assert (await outsider.first(PublishPacket)).topic == "kept"
        for number, topic in enumerate(("private/now", "private", "x/now"), start=1):
            bob.send(PublishPacket(topic, b"x", qos=qos, packet_id=number if int(qos) else None))
        assert (await outsider.first(PublishPacket)).topic == "x/now"


async def test_a_session_that_slept_does_not_bring_what_may_not_be_received(users: Path) -> None:
    async with ruled(users) as door:
        sleeper = ConnectPacket("sleeper", session_expiry_interval=100)
        first = await door.peer(connect=sleeper)
        await first.subscribe(TopicFilter("#", max_qos=QoS.AT_LEAST_ONCE))
        first.send(DisconnectPacket())
        assert await first.closed()
        bob = await door.peer(connect=BOB)
        for number, topic in enumerate(("private/a", "public"), start=1):
            bob.send(PublishPacket(topic, b"x", qos=QoS.AT_LEAST_ONCE, packet_id=number))
            await bob.first(PubAckPacket)
        again = await door.peer(connect=sleeper)
        assert (await again.first(PublishPacket)).topic == "public"


async def test_a_forbidden_publish_is_refused_from_qos_1_on_and_dropped(users: Path) -> None:
    async with ruled(users) as door:
        watcher, outsider = await door.peer(connect=BOB), await door.peer("outsider")
        await watcher.subscribe(TopicFilter("#"))
        outsider.send(
            PublishPacket("private/0", b"x"),
            PublishPacket("private/1", b"x", qos=QoS.AT_LEAST_ONCE, packet_id=1),
        )
        assert int((await outsider.first(PubAckPacket)).reason_code) == 0x87
        outsider.send(PublishPacket("public", b"x"))
        assert (await watcher.first(PublishPacket)).topic == "public"


@pytest.mark.parametrize("version", [V5, V311])
async def test_a_connect_whose_will_may_not_be_published_is_refused(users: Path, version: Version) -> None:
    async with ruled(users) as door:
        for client, code in (("outsider", 0x87), ("bob", 0)):
            named = {"username": "bob", "password": b"builder"} if client == "bob" else {}
            connect = ConnectPacket(client, will=Will("private/will", payload=b"x"), **named)  # type: ignore[arg-type]
            assert await answer(door, connect, version) == code


@pytest.mark.parametrize("delay_s", [0, 1])
async def test_a_will_is_checked_against_the_rules_when_it_is_due(users: Path, delay_s: int) -> None:
    async with ruled(users) as door:
        watcher = await door.peer(connect=BOB)
        await watcher.subscribe(TopicFilter("#"))
        dying = []
        for topic in ("soon/private", "will"):
            will = Will(topic, payload=b"x", will_delay_interval=delay_s)
            connect = ConnectPacket(topic.replace("/", "-"), session_expiry_interval=60, will=will)
            dying.append(await door.peer(connect=connect))
        if delay_s:  # they wait already when the rules change
            for each in dying:
                each.writer.transport.abort()
            await until(lambda: len(door.parts.wills) == 2)
        rules = parse_rules(OPEN_BUT_FOR_PRIVATE.replace("private/#", "soon/#"), "rules")
        door.guard.access = Rules(rules)
        door.listener.guard_changed(Changed(access=True))
        for each in dying:
            each.writer.transport.abort()
        assert (await watcher.first(PublishPacket)).topic == "will"


async def test_a_copied_will_is_checked_by_the_publishers_rules_for_its_owner(users: Path) -> None:
    async with ruled(users) as door:
        watcher = await door.peer(connect=BOB)
        await watcher.subscribe(TopicFilter("#"))
        told: list[str] = []
        for owner, topic in (("", "private/x"), ("bob", "private/y"), ("", "z")):
            will = Bequest(Publication(topic, b"x", 0, "dead"), owner=owner)
            door.parts.will_publisher.publish(will, lambda topic=topic: told.append(topic))  # type: ignore[misc]
        assert told == ["private/x", "private/y", "z"], "all are settled"
        assert [(await watcher.first(PublishPacket)).topic for _ in range(2)] == ["private/y", "z"]


async def test_a_group_gets_round_no_rule(users: Path) -> None:
    async with ruled(users) as door:
        outsider = await door.peer("outsider")
        outsider.send(SubscribePacket(1, [TopicFilter("$share/g/private/#"), TopicFilter("$share/g/#")]))
        codes = (await outsider.first(SubAckPacket)).reason_codes
        assert [int(code) for code in codes] == [0x80, 2]


async def test_a_stranger_has_no_rights(door: Door) -> None:
    connection = door.listener.make()
    assert not door.listener.register.rights(connection).may_publish("a")
    assert door.listener.register.who(connection).client_id == ""


async def test_a_client_that_rules_cannot_name_is_refused(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    await asyncio.to_thread(rules.write_text, RULES.replace("%u", "%c").replace('"*"', '"anonymous"'))
    async with GuardedDoor(Settings(access=Access(rules=str(rules)))) as door:
        assert await answer(door, ConnectPacket("#", clean_start=True)) == 0x87
        assert await answer(door, ConnectPacket("plain", clean_start=True)) == 0


async def test_an_address_is_only_trusted_if_it_is_known(users: Path) -> None:
    async with GuardedDoor(Settings(access=Access(users=str(users)))) as door:
        await door.peer("c")
        (connection,) = door.listener._clients.values()
        assert door.listener._connections[connection] == Origin("127.0.0.1")


async def test_a_change_of_certificates_alone_leaves_rights_alone(users: Path) -> None:
    async with GuardedDoor(Settings(access=Access(users=str(users)))) as door:
        door.listener.guard_changed(Changed(certificates=True))
        assert door.changes == 0
