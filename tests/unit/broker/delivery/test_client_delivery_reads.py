"""What a client that is behind gets of the log."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from mqtt5 import PublishPacket

from tocsin.broker.client import Recipient
from tocsin.broker.delivery import message_log as module
from tocsin.broker.delivery.client_delivery import message_frame, read_messages
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.core.delivery.signals import BatchRead, Deliver, ReadBatch
from tocsin.core.forwarding.table import Subscription
from tocsin.core.quality.ownership import Owners
from tocsin.model.publication import Publication, decode_publication, encode_publication
from tocsin.model.subjects import messages_log, subject_of
from tocsin.ports import Record
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.mqtt.codec import Decoder
from tocsin.wire.mqtt.connect import V5


class Reader:
    """A client that may have everything but ``denied``."""

    client_id = "c"
    version = V5
    send_max_bytes = 1 << 30

    def may_receive(self, topic: str) -> bool:
        return topic != "denied"


async def test_each_entry_that_is_caught_up_with_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(MemoryServer())
    log = await store.log(messages_log("net", None, None))
    topics = ("a", "other", "denied", "b")
    messages = [Publication(topic, topic.encode(), 1, "p") for topic in topics]
    await log.append(
        [Record(subject_of(each.topic, "net"), encode_publication(each), each.topic) for each in messages]
    )
    message_log = MessageLog(log, "net", records_max=10, pressure=lambda held: None)
    await message_log.open()
    following = asyncio.create_task(message_log.follow(lambda entry, publication: False))
    read: list[str] = []

    def decode(payload: bytes) -> Publication:
        found = decode_publication(payload)
        read.append(found.topic)
        return found

    monkeypatch.setattr(module, "decode_publication", decode)
    recipient = cast(Recipient, Reader())
    wanted = {name: Subscription(qos=1, identifier=7) for name in ("a", "b", "denied")}
    asked = ReadBatch(filters=tuple(wanted), start=1, critical=False)
    batch = await read_messages(asked, message_log, recipient, wanted, Owners())
    assert isinstance(batch, BatchRead)
    sent: list[PublishPacket] = []
    for number, matched in enumerate(batch.entries, 1):
        effect = matched.sent(number, False)
        assert isinstance(effect, Deliver)
        (packet,) = Decoder(1 << 20, role="client", version=V5).feed(message_frame(effect, recipient))
        assert isinstance(packet, PublishPacket)
        sent.append(packet)
    assert [(each.topic, each.packet_id, each.subscription_ids) for each in sent] == [
        ("a", 1, [7]),
        ("b", 2, [7]),
    ]
    assert read == ["a", "denied", "b"], "each once, and what nobody asked for not at all"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await store.close()
