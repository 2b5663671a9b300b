"""Asking for results of a channel that are there already.

    answer = await client.results("EmergenciesNearMe", "alice", newest=10)
    answer = await client.results("EmergenciesNearMe", "alice", since=answer.next)

The question is published at QoS 1 to ``$results/…``. Its answer comes on a topic that only this client uses: a message
for each result, and a last one that says how many there were. All of them carry the question's number.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from mqtt5 import Packet, PublishPacket

from tocsin.client.channel import Notification
from tocsin.core.channels.pull import ANSWER_TYPE, PULL
from tocsin.errors import Malformed, PublishRefused, TocsinError
from tocsin.model.publication import Publication
from tocsin.model.versions import UNREADABLE
from tocsin.wire.mqtt.topics import CHANNEL_PREFIX, RESULTS_PREFIX


class Pulled(msgspec.Struct, frozen=True):
    """Results that were asked for, oldest first."""

    results: tuple[Notification, ...]
    next: int  # ask for results ``since`` this position to go on
    more: bool = False  # there were more behind them, when the broker answered
    trimmed: bool = False  # some that were asked for are no longer kept
    too_large: int = 0  # results that were left out, because this client takes no packet of their size


class _Last(msgspec.Struct, frozen=True):
    """The last message of an answer."""

    v: int = 1
    count: int = 0
    next: int = 0
    more: bool = False
    trimmed: bool = False
    too_large: int = 0
    error: str | None = None


_LAST: Final = msgspec.json.Decoder(_Last)


class _Question:
    __slots__ = ("answer", "found", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.found: list[Notification] = []
        self.answer: asyncio.Future[Pulled] = asyncio.get_running_loop().create_future()


class Pulls:
    """The questions of one client that wait for their answers."""

    def __init__(self, token: str) -> None:
        self._reply = f"{RESULTS_PREFIX}answer/{token}"
        self._numbers = 0
        self._asked: dict[bytes, _Question] = {}

    def ask(self, name: str, limits: dict[str, Any]) -> tuple[Publication, asyncio.Future[Pulled]]:
        """The question to publish for a subscription's results, and its answer."""
        self._numbers += 1
        number = str(self._numbers).encode()
        question = self._asked[number] = _Question(RESULTS_PREFIX + name.removeprefix(CHANNEL_PREFIX))
        question.answer.add_done_callback(lambda _: self._asked.pop(number, None))
        asked = {name: value for name, value in limits.items() if value is not None}
        message = Publication(
            question.topic,
            msgspec.json.encode({"v": int(PULL.text), **asked}),
            1,
            "",
            response_topic=self._reply,
            correlation=number,
        )
        return message, question.answer

    def heard(self, packet: Packet) -> bool:
        """Whether a packet is part of an answer; then nobody else need look at it."""
        if not isinstance(packet, PublishPacket) or packet.topic != self._reply:
            return False
        question = self._asked.get(packet.correlation_data or b"")
        if question is not None and not question.answer.done():
            try:
                self._take(question, packet)
            except UNREADABLE as error:
                question.answer.set_exception(error)
        return True

    def _take(self, question: _Question, packet: PublishPacket) -> None:
        if dict(packet.user_properties).get("type") != ANSWER_TYPE:
            question.found.append(Notification.of(packet))
            return
        try:
            last = _LAST.decode(packet.payload)
        except msgspec.MsgspecError as error:
            raise Malformed(f"an answer with results cannot be read: {error}") from None
        PULL.check(str(last.v))
        if last.error is not None:
            question.answer.set_exception(PublishRefused(question.topic, last.error))
        else:
            found = tuple(question.found[-last.count :]) if last.count else ()
            question.answer.set_result(Pulled(found, last.next, last.more, last.trimmed, last.too_large))

    def fail(self, error: TocsinError) -> None:
        """No answer comes any more."""
        for question in list(self._asked.values()):
            if not question.answer.done():
                question.answer.set_exception(error)
