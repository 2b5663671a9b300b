"""The channels in one connection's SUBSCRIBE, until its SUBACK is sent, and what its session holds of them.

SUBACK waits until the backend subscriptions are stored, so that the next execution is for them; those that the store
has no room for are refused (0x97). A channel that is not
known here may have been defined a moment ago: it is looked for before it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqtt5 import SubAckPacket, SubAckReasonCode

from tocsin.broker.partaking import Refused
from tocsin.core.forwarding import Subscription
from tocsin.core.session import Subscribe

if TYPE_CHECKING:
    from tocsin.broker.channels import Channels, Taker

Send = Callable[[SubAckPacket, Refused], None]


class Channelling:
    """See the module's text. ``session`` names the client's session: nobody else's does so."""

    __slots__ = ("_asked", "_channels", "_client", "_held", "_session", "_tasks")

    def __init__(self, channels: Channels, client: Taker, session: str) -> None:
        self._channels = channels
        self._client = client
        self._session = session
        self._asked: dict[int, tuple[Subscribe, str | None]] = {}  # index in the SUBACK → and why not, if not
        self._held: dict[int, asyncio.Future[None]] = {}  # for what was asked, by index
        self._tasks: set[asyncio.Task[None]] = set()

    def subscribe(self, asked: Subscribe) -> None:
        """One subscription of a SUBSCRIBE; ``acknowledging`` follows."""
        problem = self._channels.problem(self._client, asked.name)
        if problem is None:
            self._add(asked)
        self._asked[asked.index] = (asked, problem)

    def _add(self, asked: Subscribe) -> None:
        name, attendant = asked.name, self._client.attendant
        before = attendant.subscriptions.get(name)
        since = before.since if before is not None and before.qos else self._channels.results.tail
        qos = min(1, int(asked.qos))
        subscription = Subscription(identifier=asked.subscription_id, qos=qos, since=since)
        self._channels.subscribe(self._client, name, subscription)
        attendant.subscribed(name, subscription)
        self._held[asked.index] = self._channels.holding.hold(self._session, self._client.client_id, (name,))

    def acknowledging(self, send: Send) -> Send:
        """What sends the SUBACK of what was asked so far: ``send``, when all that it grants is held."""
        asked, self._asked = self._asked, {}
        held, self._held = self._held, {}
        if not asked:
            return send

        def answer(packet: SubAckPacket, refused: Refused) -> None:
            task = asyncio.get_running_loop().create_task(self._answer(packet, refused, asked, held, send))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return answer

    async def _answer(
        self,
        packet: SubAckPacket,
        refused: Refused,
        asked: dict[int, tuple[Subscribe, str | None]],
        held: dict[int, asyncio.Future[None]],
        send: Send,
    ) -> None:
        own: dict[int, tuple[str, str, SubAckReasonCode]] = {}
        for index, (each, problem) in asked.items():
            if problem is not None:
                await self._channels.holding.refresh(each.name)
                problem = self._channels.problem(self._client, each.name)
                if problem is None:
                    self._add(each)
                    held[index] = self._held.pop(index)
                    await self._durable()
                else:
                    # It does not exist, or has other parameters.
                    own[index] = (each.name, problem, SubAckReasonCode.TOPIC_FILTER_INVALID)
        if held:
            await asyncio.wait(held.values())
        for index, each_held in held.items():
            if (full := each_held.exception()) is not None:
                own[index] = (asked[index][0].name, str(full), SubAckReasonCode.QUOTA_EXCEEDED)
        send(packet, {**refused, **own})

    async def _durable(self) -> None:
        """Return when the session is stored as it is now."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._client.attendant.when_durable(lambda: stored.set_result(None))
        await stored

    def unsubscribe(self, name: str) -> None:
        self._channels.holding.release(self._session, (name,))

    def end(self, expiry_s: int) -> None:
        """The connection is over; its session is kept for so long."""
        for task in self._tasks:
            task.cancel()
        self._channels.holding.leave(self._session, expiry_s)
