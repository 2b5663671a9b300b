"""History: what the message log has for a subscription that is new, oldest first, and then what comes.

A request with ``durability`` of transient-local or more gets the last messages of each topic that meet it (``history``:
one if it says nothing), and no retained ones. Meanwhile the subscription is in force with a beginning that nothing is
beyond (``UNBEGUN``): nothing of the log is delivered live. The log is read up to where this broker has dispatched it,
and what was read is sent as fast as the client takes it. When nothing is left before the tail, the subscription begins
there, in the same step: so nothing comes twice at the seam, nothing is left out, and nothing overtakes.

The subscription is stored as unbegun until then. A client that is lost before gets all of its history again.

At most POSITIONS_MAX positions of the log before the subscription are looked through, and at most HISTORY_BYTES of the
last messages of all topics are kept for it: with more, the oldest are left out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from tocsin.broker.client import ClientConnection
from tocsin.broker.delivery.client_delivery import concerns, meets_request, read_for
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.broker.retained.replay import Copy
from tocsin.core.budgets.budget import weight_of_publication
from tocsin.core.delivery.grant import Grant, grant
from tocsin.core.forwarding.table import UNBEGUN, Subscription
from tocsin.core.quality.judging import Judge
from tocsin.core.quality.ownership import Owners
from tocsin.core.quality.texts import request_of
from tocsin.core.retained.kept import Kept
from tocsin.errors import TocsinError, Trimmed
from tocsin.model.quality import EVERYTHING, Durability
from tocsin.ports import Entry
from tocsin.runtime.machines.clock import wall_s

POSITIONS_MAX: Final = 1_000_000
HISTORY_BYTES: Final = 1 << 20
AGAIN_S: Final = 1.0  # after the log could not be read


def has_history(request: str) -> bool:
    """Whether a subscription with this request begins with messages from before it."""
    durability = request_of(request).durability if request else None
    return durability is not None and durability > Durability.VOLATILE


class History:
    """The history of one subscription of a connected client; ``begin`` puts the subscription into force from a position
    on."""

    def __init__(
        self,
        client: ClientConnection,
        message_log: MessageLog,
        retained: Copy,
        name: str,
        begin: Callable[[Subscription], None],
    ) -> None:
        self._client = client
        self._log = message_log
        self._retained = retained
        self._name = name
        self._begin = begin
        self._filters = read_for((name,))
        self._judge = Judge()
        self._owners = Owners()

    @property
    def _subscription(self) -> Subscription | None:
        """The subscription, while it waits for its history."""
        found = self._client.delivery.subscriptions.get(self._name)
        return found if found is not None and found.since == UNBEGUN else None

    async def run(self) -> None:
        """Send what there is, and begin the subscription."""
        await self._log.cover(self._filters)
        tail = self._log.tail
        position = max(0, tail - POSITIONS_MAX)
        subscription = self._subscription
        if subscription is None:
            return
        depth = request_of(subscription.request).history
        if depth != EVERYTHING:
            position = await self._send_last(1 if depth is None else depth, position, tail)
        while (subscription := self._subscription) is not None:
            if position > self._log.tail:
                self._begin(msgspec.structs.replace(subscription, since=position - 1))
                return
            found, position = await self._read(position)
            await self._send(deque(found))

    async def _send_last(self, depth: int, position: int, tail: int) -> int:
        """Send the last messages of each topic up to the tail; where to go on."""
        last: dict[str, deque[Kept]] = {}
        size = 0
        while position <= tail and self._subscription is not None:
            found, position = await self._read(position)
            for kept in found:
                topic = kept.publication.topic
                of_topic = last.setdefault(topic, deque())
                of_topic.append(kept)
                size += weight_of_publication(kept.publication)
                if len(of_topic) > depth:
                    size -= weight_of_publication(of_topic.popleft().publication)
            while size > HISTORY_BYTES:
                oldest = min((each for each in last.values() if each), key=lambda each: each[0].position)
                size -= weight_of_publication(oldest.popleft().publication)
        every = sorted((kept for each in last.values() for kept in each), key=lambda kept: kept.position)
        await self._send(deque(every))
        return position

    async def _read(self, position: int) -> tuple[list[Kept], int]:
        """The next messages that are for the subscription, and where to go on."""
        while True:
            try:
                batch = await self._log.read(self._filters, position)
                entries = await self._log.resolved(batch.entries)
                return [kept for entry in entries if (kept := self._kept(entry)) is not None], batch.next
            except Trimmed as error:
                position = error.oldest
            except TocsinError:
                await asyncio.sleep(AGAIN_S)

    def _kept(self, entry: Entry) -> Kept | None:
        subscription, publication = self._subscription, self._log.publication(entry)
        if subscription is None or publication is None or not concerns(self._name, publication):
            return None
        kept = Kept(publication, entry.at_us / 1e6, entry.position)
        if kept.over(wall_s()) or not self._client.may_receive(publication.topic):
            return None
        fits = meets_request(subscription.request, publication, entry.at_us, self._judge, self._owners)
        return kept if fits else None

    async def _send(self, messages: deque[Kept]) -> None:
        """Return when all are sent, or nobody wants them any more."""
        subscription = self._subscription
        if subscription is None or not messages:
            return
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begun = msgspec.structs.replace(subscription, since=0)

        def pages(after: str | None) -> Iterator[tuple[Kept, Grant | None]]:
            while messages:
                kept = messages[0]
                may = self._client.may_receive(kept.publication.topic) and not kept.over(wall_s())
                granted = grant((begun,), kept.publication, kept.position, self._client.client_id)
                yield kept, granted if may else None
                messages.popleft()

        def done() -> None:
            if not sent.done():
                sent.set_result(None)

        self._client.delivery.send_history(self._name, pages, self._retained, done)
        await sent
