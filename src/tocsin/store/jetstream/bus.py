"""``ports.Bus`` on core NATS: nothing is kept, nothing is sent late.

While there is no connection a publication is refused (``StoreUnavailable``) rather than buffered: a message that need
not be kept is worth nothing when it arrives after the silence it would have broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from tocsin.errors import DeadlineExceeded, NoResponder, StoreUnavailable
from tocsin.ports import BusMessage
from tocsin.store import rules
from tocsin.store.jetstream.stream import persist
from tocsin.store.nats.connection import Connection, Listener, Mailbox, NotSent, Unanswered
from tocsin.store.nats.protocol import Incoming, frame
from tocsin.store.service import Service
from tocsin.store.subscription import Subscription

INBOXES = "_INBOX."
_log = structlog.get_logger("tocsin.store")


class JetStreamBus:
    """The bus of one store."""

    def __init__(self, connection: Connection, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s
        self._mine: set[Subscription] = set()
        self.dropped = 0  # messages that subscriptions which have ended lost

    async def publish(self, subject: str, payload: bytes) -> None:
        operation = f"publish on {subject}"
        self._connection.check_open(operation)
        rules.check_subject("publish", subject)
        rules.check_value(operation, payload)
        self._connection.check_size(operation, len(payload))
        try:
            await self._connection.send(frame(subject, "", b"", payload))
        except NotSent as error:
            raise StoreUnavailable(operation, str(error)) from None

    @asynccontextmanager
    async def subscribe(
        self, subject: str, *, group: str | None = None
    ) -> AsyncIterator[AsyncIterator[BusMessage]]:
        rules.check_pattern("subscribe", subject)
        if group is not None:
            rules.check_name("subscribe", group)
        subscription = Subscription()

        def take(message: Incoming) -> None:
            if (
                not subscription.put(BusMessage(message.subject, message.payload))
                and subscription.dropped == 1
            ):
                _log.warning("a slow subscription loses messages", subject=subject)

        listener = await self._listen(f"subscribe to {subject}", subject, group or "", take)
        self._mine.add(subscription)
        try:
            yield subscription
        finally:
            self._mine.discard(subscription)
            self.dropped += subscription.dropped
            await listener.stop()

    @asynccontextmanager
    async def serve(
        self, subject: str, answer: Callable[[BusMessage], Awaitable[bytes]]
    ) -> AsyncIterator[None]:
        rules.check_pattern("serve", subject)
        service = Service(subject, answer)

        def take(message: Incoming) -> None:
            async def reply(payload: bytes) -> None:
                rules.check_value(f"answer on {message.subject}", payload)
                self._connection.check_size(f"answer on {message.subject}", len(payload))
                try:
                    await self._connection.send(frame(message.reply, "", b"", payload))
                except NotSent as error:
                    _log.debug("an answer was not sent", subject=message.subject, problem=str(error))

            # A client that may create a consumer can have JetStream deliver any message anywhere, with a reply
            # subject of JetStream's own or none. So a request whose answer does not go to an inbox did not come from
            # an authorised client.
            if message.reply.startswith(INBOXES):
                service.take(BusMessage(message.subject, message.payload), reply)

        listener = await self._listen(f"serve {subject}", subject, "", take)
        try:
            yield
        finally:
            await listener.stop()
            await service.close()

    async def request(self, subject: str, payload: bytes, *, deadline_s: float) -> bytes:
        operation = f"request on {subject}"
        self._connection.check_open(operation)
        rules.check_subject("request", subject)
        rules.check_value(operation, payload)
        self._connection.check_size(operation, len(payload))
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        with Mailbox(self._connection) as mailbox:
            mailbox.about = subject
            try:
                await self._connection.send(frame(subject, mailbox.address, b"", payload))
            except NotSent as error:
                raise StoreUnavailable(operation, str(error)) from None
            try:
                return (await mailbox.get(deadline_s)).payload
            except NotSent:
                raise NoResponder(subject) from None
            except Unanswered:
                self._connection.check_open(operation)
                waited_s = min(deadline_s, loop.time() - asked_s)  # less if the connection was lost
                raise DeadlineExceeded(subject, round(waited_s, 3)) from None

    def close(self) -> None:
        for subscription in self._mine:
            subscription.end()

    async def _listen(
        self, operation: str, subject: str, group: str, take: Callable[[Incoming], None]
    ) -> Listener:
        async def attempt(timeout_s: float) -> Listener:
            return await self._connection.listen(subject, group, take)

        return await persist(self._connection, operation, self._deadline_s, attempt)

    @property
    def lost(self) -> int:
        """Messages that slow subscriptions of this store lost."""
        return self.dropped + sum(subscription.dropped for subscription in self._mine)
