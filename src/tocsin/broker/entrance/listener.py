"""The broker's entrance: accepts connections within bounds, has them authenticated, and knows the connected clients.

    accepted ──► half open ──CONNECT──► authenticated (``broker.entrance.authentication``) ──► in, under its client id

Bounds, before anything is spent on a connection: how many an address may open in a second, how many sockets there are,
and how many of them have not said CONNECT. If there are too many of the last kind the oldest goes: an honest client
sends CONNECT within milliseconds, and others must not keep it out. With TLS all of this comes before the handshake.

Once it is closed nobody comes in any more, also not by a socket that the loop had accepted just before: a process may
go on under another name (``broker.main``), and would serve such a client under the old one, with nobody to send it on.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import structlog
from mqtt5 import PublishPacket

from tocsin.broker.connection.connection import Connection
from tocsin.broker.connection.turns import Turns
from tocsin.broker.delivery.durable import Durable
from tocsin.broker.entrance.authentication import Authenticator
from tocsin.broker.entrance.clients import Clients
from tocsin.broker.entrance.overdue import Packets, Unread
from tocsin.broker.entrance.ownership import Ownership
from tocsin.broker.entrance.redirects import Redirects
from tocsin.broker.entrance.registrar import ASKING_MAX, Registrar
from tocsin.broker.forwarding.exchange import Exchange
from tocsin.broker.survival.losses import Losses
from tocsin.config import Limits
from tocsin.core.access.admission import (
    BRIEF_US,
    SERVER_BUSY,
    UNKNOWN,
    Admission,
    Crowd,
    Origin,
    is_loopback,
    source_of,
)
from tocsin.core.rates import Bucket, Buckets
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.signals import (
    Accepted,
    Authenticate,
    Authenticated,
    Close,
    PeerClosed,
    Rejected,
    ServerStopping,
    TakenOver,
    WireFailed,
)
from tocsin.core.survival.watcher_places import WatcherPlaces
from tocsin.errors import ProtocolViolation
from tocsin.model.network import BrokerInfo, Scheme
from tocsin.runtime.machines.clock import monotonic_s, now_us, token_hex
from tocsin.runtime.machines.listening import BACKLOG, listen_on
from tocsin.runtime.machines.tasks import Ending, Tasks
from tocsin.runtime.security.files import Changed, Guard

ADDRESSES_MAX: Final = 10_000  # whose rate is remembered; at about 300 B each, 3 MB
BURST_S: Final = 10  # an address may open as many connections at once as it may in this time
IDS_DRAWN: Final = 64  # random client ids for each question to the system's source of chance
ACCEPT_PAUSE_S: Final = 0.1  # when the process has no descriptor left
EXHAUSTED_SAID_S: Final = 10.0  # between two lines of the log that say the same of clients
NO_TLS_SAID_S: Final = (
    10.0  # the same of handshakes that failed: strangers may knock thousands of times a second
)
TLS_CLOSE_S: Final = 5.0  # for the peer's last word in TLS

Wrap = Callable[[Connection], asyncio.Protocol]


def _bare(connection: Connection) -> asyncio.Protocol:
    return connection


def _pair(asked: Authenticate, origin: Origin) -> str:
    """A client id as it is used from one address."""
    return f"{origin.address} {asked.client_id}"


def _ignore(user: str) -> None:
    pass


def _end(task: asyncio.Task[None]) -> None:
    task.cancel()


def _nowhere(asked: Authenticate, scheme: Scheme) -> str | None:
    return None


def listening_socket(host: str, port: int, broker_id: str) -> socket.socket:
    """A bound socket of a broker that listens."""
    return listen_on(host, port, f"broker {broker_id}", "the port of that broker")


class Listener:
    """The entrance of one broker.

    ``register`` has the connected clients, ``guard`` users, rules and certificates, ``durable`` the parts that each
    connection gets. ``refuge`` is the server reference for a client of some scheme that there is no room for,
    ``destinations`` those for clients of a broker that stops. ``rights_changed`` is called when the rules may answer
    otherwise than before. ``registrar`` answers requests about accounts; None: there are none.
    """

    def __init__(
        self,
        own: BrokerInfo,
        limits: Limits,
        register: Clients,
        exchange: Exchange,
        durable: Durable,
        ownership: Ownership,
        guard: Guard,
        losses: Losses,
        *,
        rights_changed: Callable[[], None],
        refuge: Callable[[Scheme], str | None],
        destinations: Callable[[Scheme], list[str]],
        redirects: Redirects | None,
        registrar: Registrar | None = None,
    ) -> None:
        self.own = own
        self.register = register
        self._redirects = redirects
        self._losses = losses
        self._watchers_max = limits.watchers_max
        self._places: WatcherPlaces[Connection] = WatcherPlaces(limits.watchers_max)
        self._registrar = registrar
        self._asking: WatcherPlaces[Connection] = WatcherPlaces(ASKING_MAX)
        self.exchange = exchange
        self.durable = durable
        self.outbound_max_bytes = limits.outbound_max_bytes
        self.limits = SessionLimits(
            connect_deadline_us=round(limits.connect_deadline_s * 1e6),
            packet_max_bytes=limits.packet_max_bytes,
            subscriptions_max=limits.subscriptions_per_client,
            subscriptions_max_bytes=limits.subscription_bytes_per_client,
            topic_max_bytes=limits.topic_max_bytes,
            topic_max_levels=limits.topic_depth_max,
            keep_alive_max_s=limits.keep_alive_max_s,
            session_expiry_max_s=limits.session_expiry_max_s,
            receive_max=limits.receive_max,
            topic_alias_max=limits.topic_alias_max,
            subscription_ids=True,
        )
        self.guard = guard
        self._rights_changed = rights_changed
        self._sockets_max = limits.connections_max + limits.watchers_max + limits.half_open_max
        self._half_open_max = limits.half_open_max
        self._publish_rate, self._publish_burst = limits.publish_rate, limits.publish_burst
        rate = limits.connection_rate
        self._rates: Buckets[str] | None = Buckets(rate, rate * BURST_S, ADDRESSES_MAX) if rate else None
        self._connections = register.origins
        self._crowd: Crowd[tuple[Authenticate, Connection]] = Crowd()
        self._turn_comes = False  # the next turn of the crowd is under way
        self._half_open: dict[Connection, None] = {}  # oldest first; those in a TLS handshake too
        self._handshakes: dict[Connection, asyncio.Task[None]] = {}
        self._clients = register.present
        self._destinations = destinations
        sent_on = redirects.sent_on if redirects is not None else _nowhere
        schemes = {each.scheme for each in own.entrances}
        plain = not schemes or not schemes.isdisjoint((Scheme.MQTT, Scheme.WS))
        policy = msgspec.structs.replace(guard.policy, plain=plain)
        self._admission = Admission(limits.connections_max, policy)
        self._authenticator = Authenticator(
            self._admission,
            guard,
            register,
            refuge,
            sent_on,
            asks=ownership.asks,
            entitled=ownership.entitled,
            refused=self._note_refused,
            logged_in=registrar.logged_in if registrar is not None else _ignore,
        )
        self.turns = Turns(lambda act: asyncio.get_running_loop().call_soon(act))
        self.packets = Packets(monotonic_s)
        self.unread = Unread(limits.unread_deadline_s, monotonic_s)
        self._exhausted_said = -EXHAUSTED_SAID_S
        self._no_tls_said = -NO_TLS_SAID_S
        self._no_tls = 0  # handshakes that failed
        self._count = 0  # connections ever made
        self.cut_short = 0  # clients that had to go for what they made us hold
        self._turned_away = 0  # of them, by the bounds
        self._servers: list[asyncio.Server] = []
        self._opened = self._is_closed = False
        self.ending = (
            Ending()
        )  # a listener that does not accept any more is of no use: the broker ends with it
        self._tasks = Tasks("the listener", self.ending.fail)  # accepting and watching
        self._log = structlog.get_logger().bind()  # once: it is asked twice for every client
        self._ids: list[str] = []  # client ids to give to clients without one, drawn many at a time

    @property
    def clients(self) -> int:
        return len(self._clients)

    @property
    def refused(self) -> int:
        """Connections and clients that were turned away."""
        return self._turned_away + self._authenticator.refused

    @property
    def half_open(self) -> int:
        return len(self._half_open)

    # ── opening and closing ─────────────────────────────────────────────────────────────────────────────────

    async def open(
        self, listening: socket.socket, *, tls: bool = False, wrap: Wrap | None = None
    ) -> Callable[[], None]:
        """Accept connections from a socket, until the answer is called; may be called for several.

        ``tls`` needs the guard's certificates; ``wrap`` puts something between the socket and a connection.
        """
        wrap = wrap or _bare
        if not self._opened:
            self._opened = True
            self._tasks.spawn(self.unread.run())
            if self.guard.has_files:
                self._tasks.spawn(self.guard.watch(self.guard_changed))
        if tls:
            assert self.guard.certificates is not None, (
                "the settings ask for certificates wherever they ask for TLS"
            )
            accepting = self._tasks.spawn(self._accept_tls(listening, wrap))
            await asyncio.sleep(0)  # for it to hold the socket, whatever comes
            return partial(_end, accepting)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: wrap(self.make()), sock=listening, backlog=BACKLOG)
        self._servers.append(server)
        return partial(self._shut, server)

    def _shut(self, server: asyncio.Server) -> None:
        """Accept no more connections from a socket; those that came by it stay."""
        self._servers.remove(server)
        server.close()

    async def close(self) -> None:
        """Take no more connections, and tell those that are there that the broker stops, and clients where to go: those
        that a coordinator's door passed on come by it again, and would not follow."""
        self._is_closed = True
        for server in self._servers:
            server.close()
        self._tasks.close()
        for task in self._handshakes.values():
            task.cancel()
        cause = f"{self.own.id}:stop"
        for connection, origin in tuple(self._connections.items()):
            reference = None if origin.passed_on else next(iter(self._destinations(origin.scheme)), None)
            connection.post(ServerStopping(server_reference=reference, cause=cause))
        self._authenticator.close()

    def draw_id(self) -> str:
        """A client id that nobody has, for a client that brings none."""
        if not self._ids:
            drawn = token_hex(8 * IDS_DRAWN)
            self._ids = [f"tocsin-{drawn[at : at + 16]}" for at in range(0, len(drawn), 16)]
        return self._ids.pop()

    def make(self) -> Connection:
        """A connection to come, over whatever transport."""
        self._count += 1
        return Connection(self, self._count)

    async def _accept_tls(self, listening: socket.socket, wrap: Wrap) -> None:
        """Accept, and shake hands only with those that the bounds let in; the loop's own server would with all."""
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    accepted, peer = await loop.sock_accept(listening)
                except OSError:  # no descriptor left, or the peer has gone already
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                    continue
                connection = self.make()
                if not self._has_room(connection, peer[0]):
                    accepted.close()
                    continue
                task = loop.create_task(self._shake_hands(connection, wrap, accepted))
                self._handshakes[connection] = task
                task.add_done_callback(partial(self._shaken, connection, accepted, peer[0]))

    async def _shake_hands(self, connection: Connection, wrap: Wrap, accepted: socket.socket) -> None:
        assert self.guard.certificates is not None, "as open() has seen"
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: wrap(connection),
            accepted,
            ssl=self.guard.certificates.context,
            ssl_handshake_timeout=self.limits.connect_deadline_us / 1e6,
            ssl_shutdown_timeout=TLS_CLOSE_S,
        )

    def _shaken(
        self, connection: Connection, accepted: socket.socket, address: str, task: asyncio.Task[None]
    ) -> None:
        """A handshake is over: well, badly, or because another one needed the room, perhaps before it began.

        After a good one the socket is its transport's, also if the client was refused meanwhile: closed here, its
        number could be another connection's while the transport still uses it.
        """
        del self._handshakes[connection]
        if connection not in self._connections:
            self._half_open.pop(connection, None)
        if task.cancelled():
            accepted.close()
        elif (error := task.exception()) is not None:
            accepted.close()
            self._turned_away += 1
            if not is_loopback(address):
                self._crowd.fault(address, now_us())
            self._note_no_tls(address, error)

    def _note_no_tls(self, address: str, error: BaseException) -> None:
        """A handshake failed. Only here is it said that a client's certificate has ended or is revoked."""
        self._no_tls += 1
        now, level = monotonic_s(), "debug"
        if not isinstance(error, OSError):  # errors of ssl, and its deadline, are OSErrors
            level = "error"
        elif isinstance(error, ssl.SSLError) and now - self._no_tls_said >= NO_TLS_SAID_S:
            self._no_tls_said, level = now, "info"
        getattr(self._log, level)(
            "no TLS with a peer", address=address, problem=str(error), so_far=self._no_tls
        )

    # ── coming in ───────────────────────────────────────────────────────────────────────────────────────────

    def admit(self, connection: Connection, transport: asyncio.BaseTransport) -> bool:
        """Whether there is room for one more connection of any client. ``transport`` tells where it comes from."""
        if self._is_closed:
            return False  # it was accepted a moment before
        origin = self._authenticator.origin(connection, transport)
        if connection not in self._handshakes and not self._has_room(connection, origin.address):
            return False
        self._connections[connection] = origin
        return True

    def _has_room(self, connection: Connection, address: str) -> bool:
        """Count a connection as half open, if its address and the number of others allow it."""
        sockets = len(self._connections) + len(self._handshakes)
        if sockets >= self._sockets_max or not self._in_time(address):
            self._turned_away += 1
            return False
        if len(self._half_open) >= self._half_open_max:
            oldest = next(iter(self._half_open))
            del self._half_open[oldest]
            self._turned_away += 1
            if oldest in self._handshakes:
                self._handshakes[oldest].cancel()
            else:
                oldest.post(
                    PeerClosed(reason="too many connections have not said CONNECT; this was the oldest")
                )
        self._half_open[connection] = None
        return True

    def _in_time(self, address: str) -> bool:
        """Whether this address is within its rate of new connections. Our own machine is not counted: a proxy on
        it speaks for everybody."""
        if self._rates is None or not address or is_loopback(address):
            return True
        return self._rates.try_take(source_of(address), now_us())

    def authenticate(self, asked: Authenticate, connection: Connection) -> Authenticated | Rejected | None:
        """Whether a connection may come in. None: that takes a while, and the connection will be told."""
        self._half_open.pop(connection, None)
        origin = self._connections[connection]
        if (page := connection.page) is not None:
            origin = self._connections[connection] = msgspec.structs.replace(origin, page=page)
        if asked.aside:
            return self._authenticator.authenticate(asked, connection, origin)
        self._await_turn()
        names = (asked.client_id, origin.address, _pair(asked, origin))
        if not self._crowd.comes((asked, connection), names, now_us()):
            return None
        return self._authenticator.authenticate(asked, connection, origin)

    def _note_refused(self, asked: Authenticate, origin: Origin) -> None:
        """A client was refused. It counts against the id from that address: nobody can make another's id sick."""
        self._crowd.fault(_pair(asked, origin), now_us())

    def _await_turn(self) -> None:
        if not self._turn_comes:
            self._turn_comes = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Let in the next of a crowd; the packets of others are read in between."""
        self._turn_comes = False
        for asked, connection in self._crowd.turn():
            origin = self._connections.get(connection)
            if origin is not None:  # else it has gone while it waited
                answer = self._authenticator.authenticate(asked, connection, origin)
                if answer is not None:
                    connection.post(answer)
        if len(self._crowd):
            self._await_turn()

    # ── connected clients ───────────────────────────────────────────────────────────────────────────────────

    def guard_changed(self, changed: Changed) -> None:
        """The users or the rules are others."""
        self._authenticator.changed(changed)
        if changed.access:
            for connection in self._clients.values():
                connection.rights_changed()
            self._rights_changed()

    def accept(self, connection: Connection, accepted: Accepted) -> None:
        """Register a connection under its client id."""
        before = self._clients.get(accepted.client_id)
        self._clients[accepted.client_id] = connection
        if before is not None:
            if self._redirects is not None:
                self._redirects.went(accepted.client_id)  # until it has its CONNACK
            before.post(TakenOver(clean_start=accepted.clean_start, cause=accepted.cause))
        self._log.debug("client accepted", subscriber=accepted.client_id, cause=accepted.cause)

    def introduce(self, connection: Connection, accepted: Accepted) -> tuple[tuple[str, str], ...]:
        """A client is in: what to tell it of this broker and others, if it wants to know."""
        if self._redirects is None or connection not in self._connections:
            return ()
        return self._redirects.came(accepted, self._connections[connection].scheme)

    def watch(self, connection: Connection, accepted: Accepted) -> tuple[tuple[str, str], ...] | str:
        """A connection may come in that only watches a broker: what to tell it, or (words) why there is no place.

        It is registered under no client id.
        """
        bound = f"this broker tells no more than {self._watchers_max} watchers (limits.watchers_max)"
        origin = self._connections.get(connection, UNKNOWN)
        let_in, gone = self._places.comes(connection, source_of(origin.address), connection.user)
        if gone is not None:
            error = ProtocolViolation(f"{bound}, and others have fewer", SERVER_BUSY)
            gone.post(WireFailed(error=error, cause=accepted.cause))
        return self._losses.came(connection, accepted.watches) if let_in else bound

    def attend(self, connection: Connection, accepted: Accepted) -> str:
        """A connection may come in that is about accounts; or (words) why there is no place."""
        origin = self._connections.get(connection, UNKNOWN)
        let_in, gone = self._asking.comes(connection, source_of(origin.address), "")
        bound = f"this broker attends to no more than {ASKING_MAX} connections about accounts; try again"
        if gone is not None:
            error = ProtocolViolation(f"{bound}: others have fewer", SERVER_BUSY)
            gone.post(WireFailed(error=error, cause=accepted.cause))
        return "" if let_in else bound

    def ask_account(self, connection: Connection, packet: PublishPacket) -> None:
        """A connection about accounts asks."""
        assert self._registrar is not None, "else it is not let in"
        self._registrar.ask(connection, packet, self._connections.get(connection, UNKNOWN))

    def tell_visitors(self) -> None:
        """Other brokers than before could take our clients."""
        if self._redirects is not None:
            for client_id, packet in self._redirects.news():
                self._clients[client_id].send(packet)

    def drain(self, drains: bool) -> None:
        """The broker is being emptied, and takes no new clients; or no longer."""
        self._admission.drains = drains

    def follows(self, client_id: str) -> bool:
        """Whether a connected client is known to follow a redirect."""
        return self._redirects is not None and self._redirects.knows(client_id)

    def publish_bucket(self) -> Bucket | None:
        """The publish rate of one connection; None: unlimited."""
        return Bucket(self._publish_rate, self._publish_burst, now_us()) if self._publish_rate else None

    def note_exhausted(self, connection: Connection, problem: str) -> None:
        """A client has to go because a budget has no room for it, or because it does not read."""
        self.cut_short += 1
        now = monotonic_s()
        if now - self._exhausted_said >= EXHAUSTED_SAID_S:
            self._exhausted_said = now
            self._log.warning(
                "a client is disconnected: it makes this broker hold too much",
                subscriber=connection.client_id,
                user=self.register.who(connection).user,
                problem=problem,
                so_far=self.cut_short,
            )

    def closed(self, connection: Connection, close: Close) -> None:
        """Keep a note of how a connection ended."""
        self._log.debug(
            "connection closed",
            subscriber=connection.client_id,
            cause=close.cause,
            reason=close.reason,
            reason_code=close.reason_code,
            fault=close.fault,
        )

    def release(self, connection: Connection) -> None:
        """A connection is over; forget all that it held. Harmless when repeated."""
        self._connections.pop(connection, None)
        self._half_open.pop(connection, None)
        self.turns.remove(connection)
        self.packets.done(connection)
        self.unread.ended(connection)
        self._authenticator.forget(connection)
        self._losses.watchers.went(connection)
        self._places.went(connection)
        self._asking.went(connection)
        if self._clients.get(connection.client_id) is connection:
            del self._clients[connection.client_id]
            if now_us() - connection.came_us < BRIEF_US:
                self._crowd.fault(connection.client_id, now_us())
            self.durable.session_entry.client_went(connection.client_id, unheard=not connection.heard_us)
            if self._redirects is not None:
                self._redirects.went(connection.client_id)
        self.exchange.forget(connection)
