"""The queries in one connection's SUBSCRIBE, until its SUBACK is sent.

SUBACK waits for the coordinator's answer, for a while: so what it grants is true when it is there. A query that the
coordinator does not take is refused there (0x97).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mqtt5 import SubAckPacket, SubAckReasonCode

from tocsin.broker.partaking import Refused
from tocsin.broker.queries import Queries

Asked = dict[
    int, tuple[str, Callable[[], None]]
]  # index in the SUBACK → the subscription, and what comes after
Send = Callable[[SubAckPacket, Refused], None]


class Inquiring:
    """See the module's text."""

    __slots__ = ("_asked", "_queries", "_tasks")

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._asked: Asked = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def subscribe(self, index: int, name: str, then: Callable[[], None]) -> None:
        """``then`` is to be done when the client knows that it is subscribed."""
        self._asked[index] = (name, then)

    def acknowledging(self, send: Send) -> Send:
        """What sends the SUBACK of what was asked so far: ``send``, when the coordinator has answered."""
        asked, self._asked = self._asked, {}
        if not asked:
            return send

        def answer(packet: SubAckPacket, refused: Refused) -> None:
            if all(self._queries.is_known(name) for name, _ in asked.values()):
                self._finish(packet, refused, asked, {}, send)
                return
            task = asyncio.get_running_loop().create_task(self._answer(packet, refused, asked, send))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return answer

    async def _answer(
        self,
        packet: SubAckPacket,
        refused: Refused,
        asked: Asked,
        send: Send,
    ) -> None:
        problems = await self._queries.answered(name for name, _ in asked.values())
        self._finish(packet, refused, asked, problems, send)

    def _finish(
        self,
        packet: SubAckPacket,
        refused: Refused,
        asked: Asked,
        problems: dict[str, str],
        send: Send,
    ) -> None:
        full = SubAckReasonCode.QUOTA_EXCEEDED
        own = {index: (name, problems[name], full) for index, (name, _) in asked.items() if name in problems}
        send(packet, {**refused, **own})
        for name, then in asked.values():
            if name not in problems:
                then()
