"""One connection to the NATS servers: sending, reply addresses, subscriptions, and coming back after a loss.

nats-py carries the bytes. This module is the only one that knows it: what it raises ends here, as one of two outcomes
of a request that the rest of the store is written in:

- ``NotSent``: nothing reached a server that acts on it, so nothing happened;
- ``Unanswered``: it was sent and no answer came, so it may have happened.

A server that does not let us publish or subscribe says so beside the request, not in answer to it. What it says is
brought to those who wait: they get ``errors.Forbidden``, at once.

The connection reconnects by itself for ever. nats-py gives up in some cases (a server that refuses the log-in while
it starts, a protocol error) and can stall in others, so a keeper looks after it and opens a fresh client when the
old one is closed or has been away for too long; subscriptions move along.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from nats import errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from tocsin.errors import Forbidden, OperatorError, Refused, StoreUnavailable
from tocsin.store.login import Login
from tocsin.store.nkeys import public_key, sign

RECONNECT_S: Final = 0.25  # between attempts at one server: a restarted server is back within a second
# Away for longer than this, the client is replaced; nats-py's own loop takes 2 s a server.
STALLED_S: Final = 20.0
KEEPER_S: Final = 0.5  # how often the keeper looks
PING_S: Final = 5  # a half-open connection is noticed after three of these
SEND_BUFFER_MAX_BYTES: Final = 64 << 20  # what may wait for the socket: eight appends of the largest size
HEADER_MAX_BYTES: Final = 4_096  # what our headers add to a payload, at most
ECHO_S: Final = 5.0  # for a message to the server and back
DISCARD_S: Final = 2.0  # for a client to close
LISTEN_MAX: Final = 65_536  # messages that one subscription holds for a slow reader

FORBIDDEN_TOLD_MAX: Final = 100  # subjects that the log has been told of; beyond it, it is told again

_NOBODY = "503"
_VIOLATION: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')
_log = structlog.get_logger("tocsin.store")
# nats-py begins TLS on streams that do not know of it; the loop says so whenever a server closes. It changes nothing.
logging.getLogger("asyncio").addFilter(
    lambda record: "eof_received() has no effect" not in record.getMessage()
)


class NotSent(Exception):
    """The request did not reach anybody who acts on it."""


class Unanswered(Exception):
    """The request was sent, and no answer came."""


class Incoming(msgspec.Struct, frozen=True):
    """A message from a server."""

    subject: str
    reply: str
    payload: bytes
    headers: dict[str, str]

    @property
    def status(self) -> str:
        return self.headers.get("Status", "")


def frame(subject: str, reply: str, headers: bytes, payload: bytes) -> bytes:
    """A publication in the protocol's bytes. ``headers`` are whole lines, each with its line end."""
    target = f"{subject} {reply}".encode() if reply else subject.encode()
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (target, len(payload), payload)
    size = len(headers) + 12  # the version line, and the empty line at the end
    return b"HPUB %b %d %d\r\nNATS/1.0\r\n%b\r\n%b\r\n" % (
        target,
        size,
        size + len(payload),
        headers,
        payload,
    )


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
            if subject.lower() == error.subject:
                self._forbidden = Forbidden(error.role, error.action, subject)
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
        self, connection: Connection, subject: str, group: str, take: Callable[[Incoming], None]
    ) -> None:
        self.subject = subject
        self.group = group
        self.take = take
        self._connection = connection
        self._subscription: Subscription | None = None
        self.forbidden: Forbidden | None = None

    async def attach(self, client: Client) -> None:
        async def receive(message: Any) -> None:
            self.take(
                Incoming(message.subject, message.reply or "", message.data, dict(message.headers or {}))
            )

        self._subscription = await client.subscribe(
            self.subject, queue=self.group, cb=receive, pending_msgs_limit=LISTEN_MAX, pending_bytes_limit=0
        )

    async def stop(self) -> None:
        self._connection._listeners.discard(self)
        if self._subscription is not None:
            try:
                await self._subscription.unsubscribe()
            except Exception as error:  # the client is closed or away: then the subscription is gone as well
                _log.debug("unsubscribed without the server", subject=self.subject, problem=str(error))


class Connection:
    """The way to the servers. Everything it raises is named in this module or in ``errors``."""

    def __init__(self, urls: Sequence[str], login: Login, name: str) -> None:
        self._urls = list(urls)
        self._login = login
        self._name = name
        self._client = Client()
        self._context = login.context()
        self._files = _signatures(login)
        self._prefix = self.new_inbox()
        self._mailboxes: dict[str, Mailbox] = {}
        self._listeners: set[Listener] = set()
        self._next_token = 0
        self._up = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._problem = "not connected yet"  # the last thing that went wrong
        self._told: set[str] = set()  # violations that are in the log
        self._since_s = 0.0  # when the connection was lost, by the loop's clock
        self.lost: set[Callable[[], None]] = set()  # called whenever the connection is lost
        self.closed = False
        self.reconnects = 0
        self.losses = 0  # how often the connection was lost

    async def open(self, deadline_s: float) -> None:
        """Connect, or ``StoreUnavailable`` (no server) or ``Refused`` (a server that does not let us in)."""
        await self._replace_client(deadline_s)
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="store keeper")

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await _discard(self._client)
        self._went_down("this store was closed")

    @property
    def connected(self) -> bool:
        return self._up.is_set() and self._client.is_connected

    @property
    def url(self) -> str:
        url = self._client.connected_url
        return "" if url is None else f"{url.scheme}://{url.hostname}:{url.port}"

    @property
    def max_payload(self) -> int:
        """The largest message that the server takes, headers included."""
        return self._client.max_payload

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
        """Write publications in one piece; ``NotSent`` if there is no connection or its buffer is full.

        nats-py's ``publish`` would encode each one by itself at five times the cost; its own commands are handed
        over in the same way as here.
        """
        if not self.connected:
            raise NotSent(self._problem)
        if self._client.pending_data_size + len(frames) > SEND_BUFFER_MAX_BYTES:
            raise NotSent("the send buffer is full")
        await self._client._send_command(frames)
        await self._client._flush_pending()

    async def ask(self, subject: str, payload: bytes, timeout_s: float, headers: bytes = b"") -> Incoming:
        """One request, one answer."""
        with Mailbox(self) as mailbox:
            mailbox.about = subject
            await self.send(frame(subject, mailbox.address, headers, payload))
            return await mailbox.get(timeout_s)

    def check_size(self, operation: str, size: int) -> None:
        """A payload over the server's bound would cost the connection; refuse it before."""
        bound = self._client.max_payload
        if self.connected and size + HEADER_MAX_BYTES > bound:
            raise Refused(
                operation, f"a payload of {size} bytes is too large for a server with max_payload {bound}"
            )

    # ── receiving ───────────────────────────────────────────────────────────────────────────────────────────

    async def listen(self, subject: str, group: str, take: Callable[[Incoming], None]) -> Listener:
        """Subscribe; on return the server knows of it. ``NotSent`` if there is no connection."""
        if not self.connected:
            raise NotSent(self._problem)
        listener = Listener(self, subject, group, take)
        self._listeners.add(listener)
        try:
            await listener.attach(self._client)
            with Mailbox(
                self
            ) as echo:  # a message to ourselves comes back once the server has seen what was before
                await self.send(frame(echo.address, "", b"", b""))
                await echo.get(ECHO_S)
            if listener.forbidden is not None:
                raise listener.forbidden
        except Forbidden:
            await listener.stop()
            raise
        except Exception as error:  # whatever nats-py says, the subscription is not there
            await listener.stop()
            raise NotSent(_words(error)) from error
        except BaseException:
            await listener.stop()
            raise
        return listener

    def new_inbox(self) -> str:
        """A subject that nobody else hears: of another role by the server's rules, of ours by chance."""
        return f"{self._login.inbox}.{secrets.token_hex(11)}"

    def _open_mailbox(self, mailbox: Mailbox) -> None:
        self._next_token += 1
        mailbox.token = f"{self._next_token:x}"
        mailbox.address = f"{self._prefix}.{mailbox.token}"
        self._mailboxes[mailbox.token] = mailbox

    async def _deliver(self, message: Any) -> None:
        mailbox = self._mailboxes.get(message.subject[len(self._prefix) + 1 :])
        if mailbox is not None:
            mailbox.put(Incoming(message.subject, message.reply or "", message.data, message.headers or {}))

    # ── coming back ─────────────────────────────────────────────────────────────────────────────────────────

    async def _replace_client(self, deadline_s: float) -> None:
        """Open a fresh client in place of the old one."""
        if self._keeper is not None:
            await _discard(self._client)
        client = _Client()
        client.secure = self._login.secure
        refused = asyncio.Event()
        options = self._options(client, refused)
        work: list[Awaitable[Any]] = [client.connect(**options), refused.wait()]
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            await asyncio.wait(tasks, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
                await client.subscribe(
                    f"{self._prefix}.*", cb=self._deliver, pending_msgs_limit=0, pending_bytes_limit=0
                )
                for listener in tuple(self._listeners):
                    await listener.attach(client)
                await client.flush(timeout=5)
                if self._login.secure and not _encrypted(client):  # nats-py has changed beneath ``_Client``
                    raise _Unencrypted("the connection is not encrypted")
                self._client = client
                self._came_up()
        except Exception as error:
            self._problem = _words(error)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._client is not client:
                await _discard(client)
        if self._client is not client:
            if refused.is_set():
                raise Refused("connect to the store", _not_let_in(self._login))
            raise StoreUnavailable("connect to the store", f"{', '.join(self._urls)}: {self._problem}")

    def _options(self, client: Client, refused: asyncio.Event) -> dict[str, Any]:
        """How nats-py is to connect, and whom it tells of what."""

        async def on_error(error: Exception) -> None:
            if client is self._client or not self._up.is_set():
                self._problem = _words(error)
            if "authorization violation" in str(error).lower():
                refused.set()
            if (violation := _VIOLATION.search(str(error))) is not None:
                self._forbid(violation[1], violation[2])
            _log.debug("store connection", problem=_words(error))

        async def on_lost() -> None:
            if client is self._client:
                self._went_down("the connection to the server was lost")

        async def on_back() -> None:
            if client is self._client:
                self._came_up()

        login = self._login
        proof: dict[str, Any] = {}
        if login.seed:
            proof["signature_cb"] = lambda nonce: sign(self._login.seed, nonce)
            if login.jwt:
                proof["user_jwt_cb"] = lambda: bytearray(self._login.jwt.encode())
            else:
                _show_key(client, login)
        if self._context is not None:
            proof["tls"] = self._context
            proof["tls_handshake_first"] = login.first
            if login.tls_name:
                proof["tls_hostname"] = login.tls_name
        return {
            **proof,
            "servers": self._urls,
            "token": login.token or None,
            "name": self._name,
            "error_cb": on_error,
            "disconnected_cb": on_lost,
            "reconnected_cb": on_back,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_S,
            "connect_timeout": 2,
            "ping_interval": PING_S,
            "pending_size": 2 * SEND_BUFFER_MAX_BYTES,
        }

    async def _keep(self) -> None:
        """Replace the client when it has given up."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(KEEPER_S)
            self._reload()
            away_s = 0.0 if self._up.is_set() else loop.time() - self._since_s
            if self._client.is_closed or away_s > STALLED_S:
                self._went_down("the connection to the server was lost")
                try:
                    await self._replace_client(STALLED_S)
                except (Refused, StoreUnavailable) as error:
                    _log.warning("the store cannot be reached", problem=str(error))

    def _forbid(self, action: str, subject: str) -> None:
        """Bring a violation to those who wait; the log hears of each once, for nobody may be waiting.

        nats-py has put the server's words, and the subject in them, in lower case.
        """
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
        for listener in self._listeners:
            if listener.subject.lower() == subject:
                listener.forbidden = Forbidden(error.role, error.action, listener.subject)

    def _reload(self) -> None:
        """Follow files that are replaced: the next handshake and log-in go by the new ones."""
        if (found := _signatures(self._login)) == self._files:
            return
        self._files = found
        try:
            self._login = self._login.renewed()
            if self._login.seed and not self._login.jwt:
                _show_key(self._client, self._login)
            if self._context is not None:
                self._login.load(self._context)
        except OperatorError as error:
            _log.warning("new files for the store are not used", problem=str(error))

    def _came_up(self) -> None:
        if self._since_s:
            self.reconnects += 1
            _log.info("the store is back", url=self.url)
        self._up.set()

    def _went_down(self, problem: str) -> None:
        if self._up.is_set():
            self._up.clear()
            self.losses += 1
            self._since_s = asyncio.get_running_loop().time()
            if not self.closed:
                _log.warning("the store is away", problem=problem)
        self._problem = problem
        for mailbox in tuple(self._mailboxes.values()):
            mailbox.lose()
        for call in tuple(self.lost):
            call()


def _show_key(client: Client, login: Login) -> None:
    """The key that a client logs in with; nats-py sets it from a package that we do not need."""
    client._public_nkey = public_key(login.seed)


class _Client(Client):
    """nats-py, which says nothing to a server without TLS if it is to be ``secure``.

    By itself it goes by the first words of whoever answers, whatever the address is: if those do not ask for TLS, it
    sends token, JWT and signature in clear text, also whenever it comes back to a server. CONNECT is the first thing
    that it sends.
    """

    secure = False

    def _connect_command(self) -> bytes:
        if self.secure and not _encrypted(self):
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]  # nats-py leaves it open
            raise _Unencrypted("the server does not speak TLS")
        return super()._connect_command()


class _Unencrypted(errors.Error):
    """TLS was asked for, and the server has none."""


def _encrypted(client: Client) -> bool:
    writer = getattr(client._transport, "_io_writer", None)
    return writer is not None and writer.get_extra_info("ssl_object") is not None


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


async def _discard(client: Client) -> None:
    """Close a client whatever state it is in."""
    try:
        async with asyncio.timeout(
            DISCARD_S
        ):  # after a handshake that failed, it may wait for an end that never comes
            await client.close()
    except Exception as error:  # closing what is broken may fail in any way, and changes nothing
        _log.debug("a store connection did not close cleanly", problem=_words(error))


def _words(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text[:200]
