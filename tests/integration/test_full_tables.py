"""Tables of a real store that are full, on processes of ``tocsin up``: who asks for more is told so at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tests.integration.running import DEADLINE_S, operator_store, up
from tests.integration.test_elsewhere import address
from tests.unit.broker.harness import Peer
from tocsin.errors import StoreFull
from tocsin.ports import TableSpec
from tocsin.wire.mqtt.connect import V5

FULL = 0x97
BYTES = 8 << 20  # of each table
BROKERS = json.dumps([{"id": "north-1", "cluster": "north"}])


async def fill(network: dict[str, Any], table: str) -> None:
    """Write what nobody reads until not even a small cell fits."""
    store = await operator_store(network, DEADLINE_S)
    try:
        opened = await store.table(TableSpec(f"{network['network']}-{table}"))
        number = 0
        for size in (400_000, 20_000, 1_000, 64, 1):
            while True:
                number += 1
                try:
                    await opened.compare_and_set(f"filler.{number}", bytes(size), revision=0)
                except StoreFull:
                    break
    finally:
        await store.close()


async def come(network: dict[str, Any], client_id: str, expiry_s: int = 0) -> tuple[Peer, int]:
    peer = Peer(*await asyncio.open_connection(*address(network, "north-1")), V5)
    peer.send(ConnectPacket(client_id, clean_start=True, session_expiry_interval=expiry_s))
    return peer, int((await peer.first(ConnAckPacket)).reason_code)


async def subscribe(peer: Peer, name: str) -> int:
    peer.send(SubscribePacket(1, [TopicFilter(name, max_qos=QoS.AT_LEAST_ONCE)]))
    return int((await peer.first(SubAckPacket)).reason_codes[0])


async def test_full_tables_refuse_what_is_new_and_stop_nothing_else() -> None:
    shares = [f"shares.{name}_bytes={BYTES}" for name in ("groups", "sessions", "retained")]
    sets = [word for each in (f"brokers={BROKERS}", *shares) for word in ("--set", each)]
    with up(*sets, level="error") as network:
        peer, _ = await come(network, "before")
        assert await subscribe(peer, "$share/before/a") == 1
        for table in ("groups", "sessions", "retained"):
            await fill(network, table)
        assert await subscribe(peer, "$share/new/a") == FULL
        assert await subscribe(peer, "plain") == 1
        refused, code = await come(network, "lasting", 3_600)
        refused.close()
        assert code == FULL
        peer.send(PublishPacket("state", b"x", qos=QoS.AT_LEAST_ONCE, packet_id=1, retain=True))
        assert int((await peer.first(PubAckPacket)).reason_code) == FULL
        peer.send(PublishPacket("plain", b"goes on", qos=QoS.AT_LEAST_ONCE, packet_id=2))
        assert (await peer.first(PublishPacket)).payload == b"goes on"
        peer.close()
