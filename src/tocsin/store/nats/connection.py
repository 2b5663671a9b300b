"""The way to the NATS servers: requests, reply addresses, subscriptions, and coming back after a loss.

``store.nats.client`` is one connection to one server. This module dials the servers in turn, and again after a loss,
for ever; subscriptions move along. Failures end here, as one of two outcomes of a request; the rest of the store knows
only these:

- ``NotSent``: nothing reached a server that acts on it, so nothing happened;
- ``Unanswered``: it was sent and no answer came, so it may have happened.

A server that does not let us publish or subscribe says so beside the request, not in answer to it. Its error reaches
the waiting callers at once, as ``errors.Forbidden``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import structlog

from tocsin.errors import Forbidden, OperatorError, Refused, StoreUnavailable
from tocsin.store.nats.client import NatsClient, NotConnected, NotLetIn
from tocsin.store.nats.login import Login
from tocsin.store.nats.protocol import Incoming, frame, subscribe, unsubscribe

DIAL_S: Final = 2.0  # for one server to let us in
DIAL_AGAIN_S: Final = 0.25  # after all servers were tried: a restarted server is back within a second
# A server that reads its accounts again refuses clients in the middle of a log-in, although it knows their keys.
REFUSALS_BELIEVED: Final = 3
LOOK_S: Final = 0.5  # between looks at files that may be replaced
WARN_S: Final = 20.0  # between lines of log about servers that are away
SEND_BUFFER_MAX_BYTES: Final = 64 << 20  # what may wait for the socket: eight appends of the largest size
HEADER_MAX_BYTES: Final = 4_096  # what our headers add to a payload, at most
ECHO_S: Final = 5.0  # for a message to the server and back

FORBIDDEN_TOLD_MAX: Final = 100  # subjects that the log has been told of; beyond it, it is told again

_MAILBOXES: Final = 1  # the subscription to all reply addresses
_NOBODY = "503"
_VIOLATION: Final = re.compile(
    r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE
)
_log = structlog.get_logger("tocsin.store")


class NotSent(Exception):
    """The request did not reach anybody who acts on it."""


class Unanswered(Exception):
    """The request was sent, and no answer came."""


class Mailbox:
    """A reply address for one request; use it as a context."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._received: deque[Incoming] = deque()
        self._lost = False
        self._forbidden: Forbidden | None = None
        self.about: str | Callable[[], Iterable[str]] = ""  # the subject of the request, or all of them
        self._waiter: asyncio.Future[None] | None = None
        self.token = ""
        self.address = ""

    def __enter__(self) -> Mailbox:
        self._connection._open_mailbox(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection._mailboxes.pop(self.token, None)

    def put(self, message: Incoming) -> None:
        self._received.append(message)
        self._wake()

    def lose(self) -> None:
        """The connection over which the answer would come is gone."""
        self._lost = True
        self._wake()

    def forbid(self, error: Forbidden) -> None:
        """The server does not let us make the request."""
        for subject in (self.about,) if isinstance(self.about, str) else self.about():
            if subject == error.subject:
                self._forbidden = error
                self._wake()
                return

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self, timeout_s: float) -> Incoming:
        """The next answer; ``Unanswered`` if there is none in time, ``NotSent`` if nobody listens there."""
        if not self._received and self._forbidden is None:
            if self._lost:
                raise Unanswered("the connection was lost")
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            alarm = loop.call_later(max(0.0, timeout_s), self._wake)
            try:
                await waiter
            finally:
                alarm.cancel()
                self._waiter = None
        if self._forbidden is not None:
            raise self._forbidden
        if not self._received:
            raise Unanswered("the connection was lost" if self._lost else f"no answer in {timeout_s:.3g} s")
        message = self._received.popleft()
        if message.status == _NOBODY and not message.payload:
            raise NotSent("no server answers for it just now")
        return message


class Listener:
    """A subscription that survives reconnects; ``stop`` ends it."""

    def __init__(
        self, connection: Connection, subject: str, group: str, take: Callable[[Incoming], None], sid: int
    ) -> None:
        self.subject = subject
        self.group = group
        self.take = take
        self.sid = sid
        self._connection = connection
        self.forbidden: Forbidden | None = None

    async def stop(self) -> None:
        await self._connection._stop_listening(self)


class Connection:
    """The way to the servers. Everything it raises is named in this module or in ``errors``."""

    def __init__(self, urls: Sequence[str], login: Login, name: str) -> None:
        self._urls = random.sample(list(urls), len(urls))  # so that processes spread over the servers
        self._login = login
        self._name = name
        self._client: NatsClient | None = None
        self._context = login.context()
        self._files = _signatures(login)
        self._prefix = self.new_inbox()
        self._mailboxes: dict[str, Mailbox] = {}
        self._listeners: dict[int, Listener] = {}  # by the numbers of their subscriptions
        self._next_sid = _MAILBOXES
        self._next_token = 0
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._problem = "not connected yet"  # the last thing that went wrong
        self._told: set[str] = set()  # violations that are in the log
        self.lost: set[Callable[[], None]] = set()  # called whenever the connection is lost
        self.closed = False
        self.reconnects = 0
        self.losses = 0  # how often the connection was lost

    async def open(self, deadline_s: float) -> None:
        """Connect, or ``StoreUnavailable`` (no server) or ``Refused`` (a server that does not let us in)."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._first_dial()
        except TimeoutError:
            words = f"{', '.join(self._urls)}: {self._problem}"
            raise StoreUnavailable("connect to the store", words) from None
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="store keeper")

    async def _first_dial(self) -> None:
        refusals = 0
        while True:
            try:
                if await self._try_servers():
                    return
            except Refused:
                refusals += 1
                if refusals == REFUSALS_BELIEVED:
                    raise
            await asyncio.sleep(DIAL_AGAIN_S)  # nobody tells when a server starts

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
        self._went_down("this store was closed")

    @property
    def connected(self) -> bool:
        return self._up.is_set()

    @property
    def url(self) -> str:
        return "" if self._client is None else self._client.url

    @property
    def max_payload(self) -> int:
        """The largest message that the server takes, headers included."""
        return 0 if self._client is None else self._client.info.max_payload

    @property
    def alone(self) -> bool:
        """Whether all that we ask for is at the server that we are connected to: it belongs to no cluster."""
        return self._client is not None and not self._client.info.cluster

    def check_open(self, operation: str) -> None:
        if self.closed:
            raise StoreUnavailable(operation, "this store was closed")

    async def wait_connected(self, timeout_s: float) -> None:
        """Until there is a server, or ``NotSent`` with what stands in the way."""
        if self.connected:
            return
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await self._up.wait()
        except TimeoutError:
            raise NotSent(self._problem) from None

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────

    async def send(self, frames: bytes) -> None:
        """Write publications in one piece; ``NotSent`` if there is no connection or its buffer is full."""
        client = self._client
        if client is None or not self.connected:
            raise NotSent(self._problem)
        if client.waiting_bytes + len(frames) > SEND_BUFFER_MAX_BYTES:
            raise NotSent("the send buffer is full")
        client.send(frames)

    async def ask(self, subject: str, payload: bytes, timeout_s: float, headers: bytes = b"") -> Incoming:
        """One request, one answer."""
        with Mailbox(self) as mailbox:
            mailbox.about = subject
            await self.send(frame(subject, mailbox.address, headers, payload))
            return await mailbox.get(timeout_s)

    def check_size(self, operation: str, size: int) -> None:
        """A payload over the server's bound would cost the connection; refuse it before."""
        bound = self.max_payload
        if self.connected and size + HEADER_MAX_BYTES > bound:
            raise Refused(
                operation, f"a payload of {size} bytes is too large for a server with max_payload {bound}"
            )

    # ── receiving ───────────────────────────────────────────────────────────────────────────────────────────

    async def listen(self, subject: str, group: str, take: Callable[[Incoming], None]) -> Listener:
        """Subscribe; on return the server knows of it. ``NotSent`` if there is no connection."""
        if not self.connected:
            raise NotSent(self._problem)
        self._next_sid += 1
        listener = self._listeners[self._next_sid] = Listener(self, subject, group, take, self._next_sid)
        try:
            await self.send(subscribe(subject, group, listener.sid))
            with Mailbox(self) as echo:  # it comes back once the server has seen what was before
                await self.send(frame(echo.address, "", b"", b""))
                await echo.get(ECHO_S)
            if listener.forbidden is not None:
                raise listener.forbidden
        except Unanswered as error:
            await listener.stop()
            raise NotSent(str(error)) from error
        except BaseException:
            await listener.stop()
            raise
        return listener

    async def _stop_listening(self, listener: Listener) -> None:
        if self._listeners.pop(listener.sid, None) is not None and self.connected:
            await self.send(unsubscribe(listener.sid))

    def new_inbox(self) -> str:
        """A subject that nobody else hears: of another role by the server's rules, of ours by chance."""
        return f"{self._login.inbox}.{secrets.token_hex(11)}"

    def _open_mailbox(self, mailbox: Mailbox) -> None:
        self._next_token += 1
        mailbox.token = f"{self._next_token:x}"
        mailbox.address = f"{self._prefix}.{mailbox.token}"
        self._mailboxes[mailbox.token] = mailbox

    def _take(self, message: Incoming) -> None:
        """A message for its subscribers. Hot."""
        if message.sid == _MAILBOXES:
            mailbox = self._mailboxes.get(message.subject[len(self._prefix) + 1 :])
            if mailbox is not None:
                mailbox.put(message)
        elif (listener := self._listeners.get(message.sid)) is not None:
            listener.take(message)

    # ── coming back ─────────────────────────────────────────────────────────────────────────────────────────

    async def _try_servers(self) -> bool:
        """Dial the servers in turn: whether one let us in; ``Refused`` if one says no."""
        for url in self._servers():
            try:
                async with asyncio.timeout(DIAL_S):
                    await self._dial(url)
                return True
            except TimeoutError:
                self._problem = "no answer from the server"
            except NotLetIn as error:
                self._problem = str(error)
                raise Refused("connect to the store", _not_let_in(self._login)) from None
            except NotConnected as error:
                self._problem = str(error)[:200]
        return False

    def _servers(self) -> Iterator[str]:
        """The servers to try: after the last one the others of the settings first, then those that it told of."""
        last = self._client
        self._urls.append(self._urls.pop(0))
        yield from self._urls
        if last is not None:
            scheme = "tls" if self._login.secure else "nats"
            yield from (f"{scheme}://{each}" for each in last.info.connect_urls)

    async def _dial(self, url: str) -> None:
        client = NatsClient(self._take, self._complained, self._lost)
        wanted = [subscribe(f"{self._prefix}.*", "", _MAILBOXES)]
        wanted += (subscribe(each.subject, each.group, each.sid) for each in self._listeners.values())
        try:
            await client.dial(url, self._login, self._context, self._name, b"".join(wanted))
        except BaseException:
            client.fail("it was not let in")
            raise
        back = self._client is not None
        self._client = client
        self._down.clear()
        if back:
            self.reconnects += 1
            _log.info("the store is back", url=self.url)
        self._up.set()

    async def _keep(self) -> None:
        """Follow files that are replaced, and dial again after a loss."""
        loop = asyncio.get_running_loop()
        warn_s = loop.time() + WARN_S
        while True:
            if self.connected:
                warn_s = loop.time() + WARN_S
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._down.wait()
            else:
                try:
                    back = await self._try_servers()
                except Refused as error:
                    back, self._problem = False, str(error)
                if not back:
                    await asyncio.sleep(DIAL_AGAIN_S)
                    if loop.time() > warn_s:
                        warn_s = loop.time() + WARN_S
                        _log.warning("the store cannot be reached", problem=self._problem)
            self._reload()

    def _complained(self, problem: str) -> None:
        if (violation := _VIOLATION.search(problem)) is not None:
            self._forbid(violation[1].lower(), violation[2])

    def _lost(self, client: NatsClient, problem: str) -> None:
        if client is self._client:
            self._went_down(problem)

    def _forbid(self, action: str, subject: str) -> None:
        """Bring a violation to those who wait; the log hears of each once, for nobody may be waiting."""
        error = Forbidden(self._login.role, "publish on" if action == "publish" else "subscribe to", subject)
        if str(error) not in self._told:
            if len(self._told) >= FORBIDDEN_TOLD_MAX:
                self._told.clear()
            self._told.add(str(error))
            _log.error("the store forbids it", problem=str(error))
        if action == "publish":
            for mailbox in tuple(self._mailboxes.values()):
                mailbox.forbid(error)
            return
        for listener in self._listeners.values():
            if listener.subject == subject:
                listener.forbidden = error

    def _reload(self) -> None:
        """Follow files that are replaced: the next handshake and log-in go by the new ones."""
        if (found := _signatures(self._login)) == self._files:
            return
        self._files = found
        try:
            self._login = self._login.renewed()
            if self._context is not None:
                self._login.load(self._context)
        except OperatorError as error:
            _log.warning("new files for the store are not used", problem=str(error))

    def _went_down(self, problem: str) -> None:
        self._problem = problem
        if not self._up.is_set():
            return
        self._up.clear()
        self._down.set()
        self.losses += 1
        if not self.closed:
            _log.warning("the store is away", problem=problem)
        for mailbox in tuple(self._mailboxes.values()):
            mailbox.lose()
        for call in tuple(self.lost):
            call()


def _signatures(login: Login) -> tuple[tuple[int, int, int], ...]:
    found = []
    for path in (*login.files(), *((login.credentials,) if login.credentials else ())):
        try:
            status = Path(path).stat()
        except OSError:
            continue
        found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _not_let_in(login: Login) -> str:
    if login.seed or login.jwt:
        who = f" of the role {login.role}" if login.role else ""
        return f"the server does not know the key{who}; check nats.credentials"
    if login.token:
        return "the server does not accept the token; check nats.token"
    return "the server asks for a log-in; set nats.credentials (or nats.token)"
