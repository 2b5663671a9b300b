"""The client for programs without asyncio: ``tocsin.client.aio`` on a thread of its own.

    with Client("mqtt://127.0.0.1:1883") as client:
        client.publish("alerts/north", "water is rising", qos=1)
        for message in client.query('Location/Room = "410"'):
            print(message.topic, message.text)

Every call blocks until it is done, and may be made from any thread; one thread reads a subscription. The notes in
``aio`` on servers, sessions, deadlines and errors hold here too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, Unpack

import uvloop

from tocsin.client import stream, subscription
from tocsin.client.address import DEFAULT_SERVERS, Server
from tocsin.client.aio import AsyncClient
from tocsin.client.channel import Notification
from tocsin.client.message import Message
from tocsin.client.options import Options, Publishing
from tocsin.client.pull import Pulled
from tocsin.client.values import Change
from tocsin.errors import ClientClosed
from tocsin.model.quality import Request
from tocsin.model.stream import Metadata

ENDING_S: Final = 1.0  # for the calls of other threads to hear that the client was closed

Result = TypeVar("Result")
Item = TypeVar("Item")


class _Loop:
    """An event loop on a thread of its own, from the first call until ``end``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one beginning, and no call after the end
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None
        self._ended = False

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        future = self._begin(work)
        try:
            return future.result()
        except BaseException:  # Ctrl-C among them
            future.cancel()
            raise

    def _begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        with self._lock:
            if self._ended:
                work.close()
                raise ClientClosed("this client")
            if self._running is not None and threading.current_thread() is self._running[1]:
                work.close()
                raise RuntimeError(
                    "on_connection cannot wait for its own client; call it from another thread"
                )
            if self._running is None:
                loop = uvloop.new_event_loop()
                thread = threading.Thread(target=loop.run_forever, name="tocsin client", daemon=True)
                thread.start()
                self._running = loop, thread
            return asyncio.run_coroutine_threadsafe(work, self._running[0])

    def end(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this, and then nothing more."""
        with self._lock:
            running, self._running, self._ended = self._running, None, True
        if running is None:
            work.close()
            return
        loop, thread = running
        try:
            asyncio.run_coroutine_threadsafe(_last(work), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _last(work: Coroutine[Any, Any, None]) -> None:
    await work
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=ENDING_S)


class Inbox(Generic[Item]):
    """A subscription: an iterator, and a context manager that unsubscribes at the end."""

    def __init__(self, loop: _Loop, inner: subscription.Inbox[Item]) -> None:
        self._loop = loop
        self._inner = inner
        loop.call(inner.open())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        try:
            return self.get()
        except ClientClosed:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(settle=kind is None)

    def get(self, deadline_s: float | None = None) -> Item:
        """The next one. ``DeadlineExceeded`` if none comes in time; ``ClientClosed`` when there will be none."""
        return self._loop.call(self._inner.get(deadline_s))

    def settle(self) -> None:
        """The last one has been dealt with: acknowledge it, without asking for the next."""

        async def settle() -> None:
            self._inner.settle()

        self._loop.call(settle())

    def close(self, *, settle: bool = True) -> None:
        """Unsubscribe. Waiting messages are dropped and acknowledged; so is the last one that was read, if
        ``settle``.
        """
        self._loop.call(self._inner.close(settle=settle))

    @property
    def dropped(self) -> int:
        """Messages that were lost because nobody read them: QoS 0 only."""
        return self._inner.dropped


class Subscription(Inbox[Message]):
    """Messages: of topic filters, or of a query."""


class Notifications(Inbox[Notification]):
    """Results of a channel, each once."""


class Streams(Inbox[Change]):
    """The changes of a set of streams. A reader that is too far behind gets the whole set again."""


class Wanted(Inbox[bool]):
    """Whether anybody else wants topics of a filter; only the newest answer waits for the reader."""


class Stream:
    """The publishing side of a stream; ``tocsin.client.stream`` says what happens when."""

    def __init__(self, loop: _Loop, inner: stream.Stream) -> None:
        self._loop = loop
        self._inner = inner
        self.topic = inner.topic

    @property
    def metadata(self) -> Metadata:
        """The metadata that this handle sent, or will send with its next message."""
        return self._inner.metadata

    @property
    def priority(self) -> int | str | None:
        """The priority of its messages: 0 to 9, or "critical"; None: unstated."""
        return self._inner.priority

    @priority.setter
    def priority(self, priority: int | str | None) -> None:
        self._inner.priority = priority

    def publish(
        self, value: object = b"", metadata: Mapping[str, Any] | None = None, /, **changes: Any
    ) -> None:
        """Send a message, with a change of metadata or without; at QoS 1 and 2 return once it is durable."""
        self._loop.call(self._inner.publish(value, metadata, **changes))

    def describe(self, metadata: Mapping[str, Any] | None = None, /, **changes: Any) -> None:
        """Change the metadata; return once the change is durable. ``PublishRefused`` if it cannot be made."""
        self._loop.call(self._inner.describe(metadata, **changes))

    def forget(self) -> None:
        """Withdraw all metadata of the stream."""
        self._loop.call(self._inner.forget())


class Client:
    """A client for programs without asyncio: publishes, subscribes, and reconnects by itself."""

    def __init__(
        self, servers: str | Sequence[str | Server] = DEFAULT_SERVERS, **options: Unpack[Options]
    ) -> None:
        self._inner = AsyncClient(servers, **options)
        self._loop = _Loop()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(settle=kind is None)

    def connect(self) -> None:
        """Return once a broker has accepted us; ``BrokerUnreachable`` if none does within the deadline."""
        try:
            self._loop.call(self._inner.connect())
        except BaseException:
            self.close()
            raise

    def close(self, *, settle: bool = True, end_session: bool = False) -> None:
        """Take leave; the broker does not publish the will.

        ``settle`` acknowledges the last message that each subscription's reader was given. ``end_session``: the broker
        forgets the session at once, whatever ``session_expiry_s`` is.
        """
        self._loop.end(self._inner.close(settle=settle, end_session=end_session))

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    @property
    def connected(self) -> bool:
        return self._inner.connected

    @property
    def server(self) -> str:
        """The server that the client is connected to, or tried last: host:port."""
        return self._inner.server

    @property
    def others(self) -> tuple[str, ...]:
        """Where the client goes on if its own servers are gone, as its broker has said: host:port."""
        return self._inner.others

    @property
    def watched(self) -> bool:
        """Whether a second connection would tell the client at once that its broker is lost (``watch``)."""

        async def watched() -> bool:
            return self._inner.watched

        return self._loop.call(watched())

    @property
    def duplicates(self) -> int:
        """How many messages came again, and were not given to a reader twice."""
        return self._inner.duplicates

    @property
    def unasked(self) -> int:
        """How many messages came to which this client has no subscription, or none any more."""
        return self._inner.unasked

    @property
    def dropped(self) -> int:
        """Messages that no reader gets."""
        return self._inner.dropped

    def publish(self, topic: str, value: object = b"", **options: Unpack[Publishing]) -> None:
        """Send a message: at QoS 0 at once and best effort; above, return once it is durable."""
        self._loop.call(self._inner.publish(topic, value, **options))

    def flush(self) -> None:
        """Wait until the broker has read everything that was published."""
        self._loop.call(self._inner.flush())

    def stream(
        self,
        topic: str,
        metadata: Mapping[str, Any] | None = None,
        /,
        *,
        qos: int = 0,
        permanent: bool = False,
        **more: Any,
    ) -> Stream:
        """The stream of a topic, to publish on; its metadata goes with the first message, or ``describe``."""

        async def make() -> stream.Stream:
            return self._inner.stream(topic, metadata, qos=qos, permanent=permanent, **more)

        return Stream(self._loop, self._loop.call(make()))

    def subscribe(
        self,
        *filters: str,
        qos: int = 0,
        no_local: bool = False,
        retained: bool = True,
        request: Request | str | None = None,
    ) -> Subscription:
        """The messages of topic filters, from here on.

        ``no_local``: not those that this client publishes. ``retained``: with the retained ones that are there.
        ``request``: only those that meet a request of quality.
        """
        wanted = self._inner.subscribe(
            *filters, qos=qos, no_local=no_local, retained=retained, request=request
        )
        return Subscription(self._loop, wanted)

    def query(self, predicate: str, *, qos: int = 0, with_streams: bool = False) -> Subscription:
        """The messages of every stream whose metadata satisfies the predicate. Raises ``QueryInvalid``."""
        return Subscription(self._loop, self._inner.query(predicate, qos=qos, with_streams=with_streams))

    def channel(self, name: str, /, *values: object, qos: int = 1, **parameters: object) -> Notifications:
        """The notifications of a channel with these parameters, from here on."""
        return Notifications(self._loop, self._inner.channel(name, *values, qos=qos, **parameters))

    def results(
        self,
        name: str,
        /,
        *values: object,
        newest: int | None = None,
        since: int | None = None,
        limit: int | None = None,
        **parameters: object,
    ) -> Pulled:
        """Results of a channel that are there already: the newest, or those behind a position, oldest first."""
        asked = self._inner.results(name, *values, newest=newest, since=since, limit=limit, **parameters)
        return self._loop.call(asked)

    def streams(self, predicate: str) -> Streams:
        """The set of streams whose metadata satisfies the predicate, then its changes. Raises ``QueryInvalid``."""
        return Streams(self._loop, self._inner.streams(predicate))

    def wanted(self, topic_filter: str) -> Wanted:
        """Whether anybody else subscribes to topics of a filter, then each change of that."""
        return Wanted(self._loop, self._inner.wanted(topic_filter))
