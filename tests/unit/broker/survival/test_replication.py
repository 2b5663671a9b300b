"""A broker whose clients its backups know: who waits for that, what they know, and what they do without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
    Will,
)

from tests.unit.broker.harness import OWN, Door, Peer, until
from tests.unit.broker.pipeline import NEAR, Pipeline
from tests.unit.broker.talk import lasting, publish, receive
from tocsin.broker.delivery.message_log import Stored
from tocsin.broker.survival.replication import Replicating, policy_of
from tocsin.broker.sys_topics import SysTopics
from tocsin.config import Limits
from tocsin.config import Replication as ReplicationSettings
from tocsin.core.replication.gamma import ClientSnapshot
from tocsin.core.replication.signals import Policy
from tocsin.errors import StoreUnavailable
from tocsin.model.channel_names import ChannelNames
from tocsin.model.network import BrokerInfo, Scheme
from tocsin.runtime.machines import shell
from tocsin.runtime.machines.clock import wall_us
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.internal.replication import LOCAL, REMOTE, Begun, Positions, encode_replication, subject

NORTH2 = BrokerInfo("north-2", "north", OWN.role, "127.0.0.1", 0)
SOUTH = BrokerInfo("south-1", "south", OWN.role, "127.0.0.1", 0)
NOBODY = BrokerInfo("nobody", "south", OWN.role, "127.0.0.1", 0)
NAMES = ("north-1", "north-2", "south-1")
QUICK = Policy(period_us=20_000, wait_us=5_000_000)


class Three:
    """A broker, its local and its remote backup."""

    def __init__(self, own: Door, local: Door, remote: Door) -> None:
        self.own, self.local, self.remote = own, local, remote

    @property
    def replication(self) -> Replicating:
        return self.own.parts.replication

    def back(self, remote: BrokerInfo = SOUTH) -> None:
        self.replication.set_backups(NORTH2, remote)

    def known(self, door: Door) -> dict[str, ClientSnapshot]:
        backup = door.parts.replication.backup
        return {each.client: each for each in backup.take_over("north-1")}

    async def until_known(self, condition: Callable[[dict[str, ClientSnapshot]], bool]) -> None:
        for door in (self.local, self.remote):
            await until(lambda door=door: condition(self.known(door)))  # type: ignore[misc]


@asynccontextmanager
async def brokers(
    store: MemoryStore | None = None, policy: Policy = QUICK, *, names: tuple[str, ...] = ()
) -> AsyncIterator[Three]:
    store = store or MemoryStore(MemoryServer())
    async with (
        Door(Limits(), store=store, broker="north-1", policy=policy, others=names) as own,
        Door(Limits(), store=store, broker="north-2", others=names) as local,
        Door(Limits(), store=store, broker="south-1", cluster="south", others=names) as remote,
    ):
        yield Three(own, local, remote)


async def test_backups_know_what_was_acknowledged() -> None:
    async with brokers() as three:
        three.back()
        peer = await three.own.peer(connect=lasting("c"))
        await peer.subscribe(
            TopicFilter("a/+", max_qos=QoS.AT_LEAST_ONCE), TopicFilter("$share/g/b"), subscription_id=7
        )
        for door in (three.local, three.remote):
            standing = three.known(door)["c"]
            assert set(standing.subscriptions) == {"a/+", "$share/g/b"}
            assert (standing.subscriptions["a/+"].qos, standing.subscriptions["a/+"].identifier) == (1, 7)
            assert standing.head.connected and standing.head.expiry_s == 3_600
            assert standing.head.session and standing.head.scheme == Scheme.MQTT
        peer.send(UnsubscribePacket(2, ["a/+"]))
        await peer.receive(UnsubAckPacket)
        for door in (three.local, three.remote):
            assert set(three.known(door)["c"].subscriptions) == {"$share/g/b"}


async def test_whoever_is_there_already_is_copied_to_new_backups() -> None:
    async with brokers() as three:
        for number in range(50):
            peer = await three.own.peer(f"c{number}")
            await peer.subscribe(TopicFilter(f"t/{number}"))
        assert three.replication.statistics()["replication_bytes"] == 0
        three.back()
        everybody = {f"c{number}" for number in range(50)}
        await three.until_known(lambda known: known.keys() == everybody)
        await until(lambda: three.replication.statistics()["backups_behind"] == 0)
        assert all(copy.whole for copy in three.local.parts.replication.backup.copies.values())


async def test_nobody_waits_longer_than_allowed_for_a_backup_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, now_us = Policy(period_us=20_000, wait_us=50_000), 0
    monkeypatch.setattr(shell, "now_us", lambda: now_us)  # for machines, time passes when it is said to
    async with brokers(policy=policy) as three:
        three.back(remote=NOBODY)
        peer = await three.own.peer("c")
        peer.send(SubscribePacket(1, [TopicFilter("a")]))
        local, remote = (three.replication.primary.recipients[role] for role in (LOCAL, REMOTE))
        await until(lambda: bool(remote.tickets) and not local.tickets and local.silent_since_us is None)
        assert three.replication.problem() is None
        now_us += policy.wait_us
        answer = await peer.receive(SubAckPacket)
        assert all(int(code) < 0x80 for code in answer.reason_codes)
        assert three.replication.problem() == "remote backup nobody not in step"
        assert three.replication.statistics()["replication_waits_missed"] >= 1
        assert set(three.known(three.local)["c"].subscriptions) == {"a"}
        await peer.subscribe(TopicFilter("b"))
        figures = SysTopics(three.own.parts)
        figures.say()
        (said,) = three.own.parts.retained.matching("$SYS/broker/replication/backups/degraded")
        assert said.publication.payload == b"1"
        three.back(remote=SOUTH)
        assert three.replication.problem() is None
        await three.until_known(lambda known: "c" in known and set(known["c"].subscriptions) == {"a", "b"})


async def test_suback_connack_and_unsuback_wait_for_the_backups() -> None:
    async with brokers() as three:
        silent = BrokerInfo("silent", "south", OWN.role, "127.0.0.1", 0)
        async with three.own.store.bus.subscribe(subject("net", "silent")) as heard:
            peer = await three.own.peer("c")
            old = await three.own.peer("old")
            three.replication.set_backups(None, silent)
            await anext(heard)
            peer.send(SubscribePacket(1, [TopicFilter("a")]), UnsubscribePacket(2, ["a"]))
            new = await three.own.peer(connect=lasting("new"), accepted=False)
            plain = await three.own.peer("plain")  # it leaves nothing behind
            await publish(old, "t", b"x")
            for waiting in (peer, new):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(waiting.next(), 0.1)
            three.replication.set_backups(None, None)
            assert isinstance(await peer.next(), SubAckPacket)
            assert isinstance(await peer.next(), UnsubAckPacket)
            assert isinstance(await new.next(), ConnAckPacket)
            await plain.subscribe(TopicFilter("b"))


async def test_a_will_is_in_the_log_once_whoever_publishes_it() -> None:
    async with brokers() as three:
        three.back()
        will = Will(topic="gone/c", payload=b"bye", qos=QoS.AT_LEAST_ONCE)
        connect = ConnectPacket("c", clean_start=True, session_expiry_interval=100, will=will)
        peer = await three.own.peer(connect=connect)
        await three.until_known(lambda known: "c" in known)
        bequest = three.known(three.local)["c"].head.will
        assert bequest is not None and bequest.record_id
        durabilities = [each.parts for each in (three.own, three.local, three.remote)]
        peer.close()
        await until(lambda: bool(three.own.parts.message_log.newest))
        for each in durabilities[1:]:
            each.will_publisher.publish(bequest, lambda: None)
        await until(lambda: all(each.message_log.newest for each in durabilities))
        there = [await each.message_log.read(["gone/c"], 1) for each in durabilities]
        assert [[entry.position for entry in batch.entries] for batch in there] == [[1], [1], [1]]


async def test_a_will_that_a_mistaken_backup_announced_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with brokers() as three:
        three.back()
        will = Will(topic="gone/c", payload=b"bye", qos=QoS.AT_LEAST_ONCE)
        peer = await three.own.peer(connect=ConnectPacket("c", session_expiry_interval=100, will=will))
        await three.until_known(lambda known: "c" in known and known["c"].head.will is not None)
        bequest = three.known(three.local)["c"].head.will
        assert bequest is not None
        three.local.parts.will_publisher.publish(bequest, lambda: None)
        await three.until_known(lambda known: known["c"].head.will is None and known["c"].head.connected)
        assert all(
            door.parts.replication.backup.is_void(bequest.record_id) for door in (three.own, three.remote)
        )
        # The store forgets ids after a while; from then on only the broker itself keeps the will from a second place.
        written: list[str] = []
        monkeypatch.setattr(three.own.parts.message_log, "commit", lambda *record: written.append(record[1]))
        peer.writer.transport.abort()
        await three.until_known(lambda known: not known["c"].head.connected)
        assert written == []


@pytest.mark.parametrize("delay_s", [0, 1])
async def test_backups_know_a_will_until_it_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, delay_s: int
) -> None:
    async with brokers() as three:
        three.back()
        stored: list[Stored] = []
        message_log = three.own.parts.message_log
        monkeypatch.setattr(
            message_log, "commit", lambda publication, record_id, done, shared: stored.append(done)
        )
        will = Will(topic="gone/c", payload=b"bye", qos=QoS.AT_LEAST_ONCE, will_delay_interval=delay_s)
        connect = ConnectPacket("c", clean_start=True, session_expiry_interval=100, will=will)
        peer = await three.own.peer(connect=connect)
        peer.writer.transport.abort()
        await until(lambda: bool(stored))
        await three.until_known(lambda known: "c" in known and not known["c"].head.connected)
        assert all(three.known(door)["c"].head.will is not None for door in (three.local, three.remote))
        stored.pop()(None, 1)
        await three.until_known(lambda known: "c" in known and known["c"].head.will is None)


async def test_the_store_shows_whether_a_client_returned_after_its_wills_copy() -> None:
    async with brokers() as three:
        three.back()
        will = Will(topic="gone/c", payload=b"bye", will_delay_interval=60)
        connect = ConnectPacket("c", session_expiry_interval=100, will=will)
        await three.own.peer(connect=connect)
        await three.until_known(lambda known: "c" in known)
        bequest = three.known(three.local)["c"].head.will
        assert bequest is not None
        lives: list[bool] = []
        three.local.parts.will_inquiries.ask("c", bequest, lives.append)
        await until(lambda: lives == [False])
        await three.remote.peer(connect=connect)
        three.local.parts.will_inquiries.ask("c", bequest, lives.append)
        await until(lambda: lives == [False, True])


async def test_wills_are_known_and_dropped_with_their_clients() -> None:
    async with brokers() as three:
        three.back()
        will = Will(topic="gone/c", payload=b"bye", will_delay_interval=60)
        connect = ConnectPacket("c", clean_start=True, session_expiry_interval=100, will=will)
        peer = await three.own.peer(connect=connect)
        for door in (three.local, three.remote):
            bequest = three.known(door)["c"].head.will
            assert bequest is not None and bequest.delay_s == 60
            assert (bequest.publication.topic, bequest.publication.payload) == ("gone/c", b"bye")
        peer.writer.transport.abort()
        await three.until_known(lambda known: "c" in known and not known["c"].head.connected)
        assert three.known(three.local)["c"].head.will is not None
        again = await three.own.peer(connect=lasting("c"))
        await three.until_known(lambda known: known["c"].head.connected and known["c"].head.will is None)
        again.send(DisconnectPacket(session_expiry_interval=0))
        await three.until_known(lambda known: known == {})


async def test_backups_that_are_named_later_know_the_wills_that_wait() -> None:
    async with brokers() as three:
        will = Will(topic="gone/c", payload=b"bye", will_delay_interval=60)
        connect = ConnectPacket("c", clean_start=True, session_expiry_interval=100, will=will)
        peer = await three.own.peer(connect=connect)
        peer.writer.transport.abort()
        await until(lambda: len(three.replication.client_state) == 1)
        three.back()
        await three.until_known(lambda known: "c" in known and known["c"].head.will is not None)


async def test_who_is_away_is_known_until_it_comes_elsewhere() -> None:
    async with brokers() as three:
        three.back()
        peer = await three.own.peer(connect=lasting("c"))
        await peer.subscribe(TopicFilter("a", max_qos=QoS.AT_LEAST_ONCE))
        peer.send(DisconnectPacket())
        await three.until_known(lambda known: "c" in known and not known["c"].head.connected)
        assert set(three.known(three.remote)["c"].subscriptions) == {"a"}
        assert len(three.replication.client_state) == 1
        await three.remote.peer(connect=lasting("c"))
        await three.until_known(lambda known: known == {})
        assert len(three.replication.client_state) == 0


async def test_who_comes_again_and_never_gets_its_session_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async with brokers() as three:
        three.back()
        peer = await three.own.peer(connect=lasting("c"))
        await peer.subscribe(TopicFilter("a", max_qos=QoS.AT_LEAST_ONCE))

        async def take(*args: object, **kwargs: object) -> None:
            raise StoreUnavailable("GetKey on sessions", "no leader")

        monkeypatch.setattr(three.own.parts.session_entry, "take", take)
        again = await three.own.peer(connect=lasting("c"), accepted=False)
        assert int((await again.receive(ConnAckPacket)).reason_code) != 0
        await three.until_known(lambda known: "c" in known and not known["c"].head.connected)
        assert set(three.known(three.remote)["c"].subscriptions) == {"a"}
        assert len(three.replication.client_state) == 1


async def test_who_left_is_not_here_while_its_session_is_still_being_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that took it for present would not await its will, should it die at another."""
    async with brokers() as three:
        three.back()
        peer = await three.own.peer(connect=lasting("c"))
        assert three.replication.is_here("c", "")
        monkeypatch.setattr(
            three.own.parts.departures, "end", lambda *args, **kwargs: None
        )  # the store is away
        peer.send(DisconnectPacket())
        await three.until_known(lambda known: "c" in known and not known["c"].head.connected)
        assert not three.replication.is_here("c", "")


async def test_positions_follow() -> None:
    async with brokers() as three:
        three.back()
        peer = await three.own.peer(connect=lasting("c"))
        await peer.subscribe(TopicFilter("a", max_qos=QoS.AT_LEAST_ONCE))
        source = await three.own.peer("source")
        for number in range(3):
            await publish(source, "a", b"%d" % number)
            await receive(peer)
        tail = three.own.parts.message_log.tail
        await three.until_known(lambda known: known["c"].positions.messages == tail)
        await publish(source, "a", b"not acknowledged")
        await peer.first(PublishPacket)
        await asyncio.sleep(0.1)
        assert three.known(three.local)["c"].positions.messages == tail


async def test_positions_of_critical_messages_follow_from_the_first_one_on() -> None:
    async with brokers() as three:
        three.back()
        peer = await three.own.peer(connect=lasting("c"))
        await peer.subscribe(TopicFilter("a", max_qos=QoS.AT_LEAST_ONCE))
        source = await three.own.peer("source")
        await publish(source, "a", b"0")
        await receive(peer)
        await three.until_known(lambda known: known["c"].positions == Positions(1))
        critical = [("priority", "critical")]
        source.send(PublishPacket("a", b"1", qos=QoS.AT_LEAST_ONCE, packet_id=2, user_properties=critical))
        await receive(peer)
        await three.until_known(lambda known: known["c"].positions.critical_messages == 2)


async def test_a_backup_that_was_restarted_is_sent_everything() -> None:
    store = MemoryStore(MemoryServer())
    async with Door(Limits(), store=store, broker="north-1", policy=QUICK) as own:
        replication = own.parts.replication
        async with Door(Limits(), store=store, broker="north-2") as local:
            replication.set_backups(NORTH2, None)
            peer = await own.peer("c")
            await peer.subscribe(TopicFilter("a"))
            assert "north-1" in local.parts.replication.backup.copies
        async with Door(Limits(), store=store, broker="north-2") as local:
            backup = local.parts.replication.backup
            await peer.subscribe(TopicFilter("b"))
            await until(lambda: replication.statistics()["replication_resyncs"] == 1)
            await until(lambda: "north-1" in backup.copies and backup.copies["north-1"].whole)
            (standing,) = backup.take_over("north-1")
            assert set(standing.subscriptions) == {"a", "b"}


async def test_only_a_local_backup_holds_standby_cells_for_channels() -> None:
    pipeline = Pipeline(MemoryStore(MemoryServer()))
    await pipeline.define(NEAR)
    table = await pipeline.store.table(ChannelNames("net").subscriptions)

    async def held() -> set[tuple[str, ...]]:
        return {tuple(key.split(".")[2:]) for key in await table.keys()}

    async def until_held(*cells: tuple[str, ...]) -> None:
        async with asyncio.timeout(10):
            while await held() != set(cells):
                await asyncio.sleep(0.01)

    async with pipeline.serve(), brokers(pipeline.store) as three:
        three.back()
        peer = await three.own.peer("c")
        await peer.subscribe(TopicFilter("$channel/Near/alice", max_qos=QoS.AT_LEAST_ONCE))
        await until_held(("north-1",), ("north-2", "_standby"))
        other = await three.local.peer("d")
        await other.subscribe(TopicFilter("$channel/Near/alice", max_qos=QoS.AT_LEAST_ONCE))
        await until_held(("north-1",), ("north-2",))
        other.send(UnsubscribePacket(2, ["$channel/Near/alice"]))
        await until_held(("north-1",), ("north-2", "_standby"))
        peer.send(DisconnectPacket())
        await until_held()


async def test_positions_in_results_follow_on_both_tracks() -> None:
    pipeline = Pipeline(MemoryStore(MemoryServer()))
    await pipeline.define(NEAR)
    async with pipeline.serve(), brokers(pipeline.store) as three:
        three.back()
        peer = await three.own.peer(connect=lasting("c"))
        await peer.subscribe(TopicFilter("$channel/Near/alice", max_qos=QoS.AT_LEAST_ONCE))
        began = three.known(three.local)["c"].positions
        assert began.results == began.critical > 0
        await pipeline.tick({("Near", ("alice",)): [{"n": 1}]}, priority=9)
        await receive(peer)
        await three.until_known(lambda known: known["c"].positions.critical > began.critical)
        assert three.known(three.local)["c"].positions.results == began.results
        await pipeline.tick({("Near", ("alice",)): [{"n": 2}]})
        await receive(peer)
        await three.until_known(lambda known: known["c"].positions.results > began.results)


async def test_garbage_on_the_bus_is_counted_and_disturbs_nobody() -> None:
    async with brokers() as three:
        await three.own.store.bus.publish(subject("net", "north-1"), b"\xc1garbage")
        await until(lambda: three.replication.malformed == 1)
        three.back()
        peer: Peer = await three.own.peer("c")
        await peer.subscribe(TopicFilter("a"))
        assert "c" in three.known(three.remote)


def test_settings_become_a_policy() -> None:
    settings = ReplicationSettings(
        mode="threshold", period_ms=100, threshold=7, wait_ms=20, threshold_bytes=9
    )
    assert policy_of(settings) == Policy("threshold", 100_000, 7, 20_000, 9)


async def former(three: Three) -> tuple[Peer, Peer]:
    """Two clients with wills and without sessions, of whom a former backup knows."""
    three.back()
    three.local.parts.replication.set_primaries(("north-1",))
    peers = []
    for client in ("polite", "mute"):
        will = Will(topic=f"gone/{client}", payload=b"bye", qos=QoS.AT_LEAST_ONCE)
        peers.append(await three.own.peer(connect=ConnectPacket(client, clean_start=True, will=will)))
    await three.until_known(lambda known: known.keys() == {"polite", "mute"})
    three.replication.set_backups(None, SOUTH)
    three.local.parts.replication.set_primaries(())
    return peers[0], peers[1]


async def test_a_former_backup_hears_from_the_others_that_a_client_said_goodbye() -> None:
    async with brokers(names=NAMES) as three:
        polite, _ = await former(three)
        polite.send(DisconnectPacket())
        await until(lambda: "polite" not in three.known(three.remote))
        mute = three.known(three.local)["mute"].head.will
        assert mute is not None
        assert await three.local.parts.witnesses.know_settled(*mute.names), "its client is still connected"
        three.replication.backup._void.clear()  # the broker itself is gone: its other backup has to know
        three.replication.backup._here.clear()
        settled: dict[str, bool] = {}

        def judge(client: str) -> Callable[[bool], None]:
            return lambda lives: settled.update({client: lives})

        for client, standing in three.known(three.local).items():
            assert standing.head.will is not None
            three.local.parts.will_inquiries.ask(client, standing.head.will, judge(client))
        await until(lambda: len(settled) == 2)
        assert settled == {"polite": True, "mute": False}


async def test_a_former_backup_awaits_the_clients_of_a_broker_that_begins_anew() -> None:
    async with brokers(names=NAMES) as three:
        await former(three)
        wills = three.local.parts.wills
        assert len(wills) == 0
        word = encode_replication("broker/north-1", "test", Begun("north-1", wall_us()))
        three.local.parts.replication.hear(word)
        assert len(wills) == 2
