"""The connected clients: the connections of one broker, by client id, with the proof of each.

This is the one register that the listener fills and all others read. It is made before any part that asks for connected
clients, so that none of them has to be told later: the copies for backups, claims to client ids, sessions that nobody
serves, provisional service. It also has the ways in which a broker ends or hurries a connection on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tocsin.core.access.admission import NOT_AUTHORIZED, Origin
from tocsin.core.access.ownership import may_take
from tocsin.core.access.rights import Access, Rights, Who
from tocsin.core.session.signals import Moving, TakenOver, WireFailed
from tocsin.core.survival.refuges import reference
from tocsin.errors import ProtocolViolation
from tocsin.model.network import BrokerInfo, Scheme

if TYPE_CHECKING:
    from tocsin.broker.connection.connection import Connection
    from tocsin.runtime.security.files import Guard

_NOBODY: Final = Who("", "")
_NOTHING: Final = Access(()).rights(_NOBODY)


class Clients:
    """The connections of one broker. ``guard`` has the rules of access."""

    def __init__(self, own: BrokerInfo, guard: Guard) -> None:
        self.present: dict[str, Connection] = {}  # client id → the connection that holds it
        self.origins: dict[Connection, Origin] = {}  # of every connection, also before its CONNECT
        self._own = own
        self._guard = guard
        self._proven: dict[Connection, tuple[Who, Rights]] = {}  # of all that have proven who they are

    # ── who ─────────────────────────────────────────────────────────────────────────────────────────────────

    def has(self, client_id: str) -> bool:
        """Whether a client is connected here."""
        return client_id in self.present

    def has_user(self, client_id: str, user: str) -> bool:
        """Whether a client is connected here, or about to be, with what belongs to this user."""
        connection = self.present.get(client_id)
        return connection is not None and may_take(user, self.who(connection).user)

    def gives_way(self, client_id: str, user: str) -> bool:
        """Whether the client that is here, or about to be, is let go for this user's elsewhere."""
        connection = self.present.get(client_id)
        return connection is not None and may_take(self.who(connection).user, user)

    def prove(self, connection: Connection, who: Who, rights: Rights) -> None:
        """A connection has proven who it is."""
        self._proven[connection] = who, rights

    def proven(self) -> Iterator[tuple[Connection, Who]]:
        for connection, (who, _) in tuple(self._proven.items()):
            yield connection, who

    def forget(self, connection: Connection) -> None:
        """A connection is over: nothing that it has proven counts any more. Harmless when repeated."""
        self._proven.pop(connection, None)

    def who(self, connection: Connection) -> Who:
        """The client id, and the user's name that was proven; both empty for a stranger."""
        found = self._proven.get(connection)
        return _NOBODY if found is None else found[0]

    def rights(self, connection: Connection) -> Rights:
        """The current rights of a connection; none, before it is accepted. Rights change: do not keep them."""
        found = self._proven.get(connection)
        return _NOTHING if found is None else found[1]

    def scheme(self, connection: Connection) -> Scheme:
        """How a connection came."""
        origin = self.origins.get(connection)
        return Scheme.MQTT if origin is None else origin.scheme

    def may_publish(self, who: Who, topic: str) -> bool:
        """Whether the rules currently let a client publish to a topic, even if it is not here."""
        return self._guard.access.may_publish(who, topic)

    # ── what is asked of them ───────────────────────────────────────────────────────────────────────────────

    def let_go(self, client_id: str) -> None:
        """Another broker wants this client."""
        connection = self.present.get(client_id)
        if connection is not None:
            connection.post(TakenOver(cause=f"{self._own.id}:hand-over"))

    def expel(self, client_id: str) -> None:
        """The client id belongs to another user, who was there first."""
        connection = self.present.get(client_id)
        if connection is not None:
            error = ProtocolViolation("this client id is in use by another user", NOT_AUTHORIZED)
            connection.post(WireFailed(error=error, cause=f"{self._own.id}:owner"))

    def send_home(self, client_id: str, server_reference: str) -> None:
        """A guest's home is back."""
        connection = self.present.get(client_id)
        if connection is not None:
            connection.post(Moving(server_reference=server_reference, cause=f"{self._own.id}:home"))

    def ask_anew(self, client_id: str) -> None:
        """A client is to come once more, here: its session can be taken now."""
        connection = self.present.get(client_id)
        if connection is not None:
            here = reference((self._own,), self.scheme(connection), 0)
            reason, cause = "the session can be taken now: come again", f"{self._own.id}:anew"
            connection.post(Moving(server_reference=here, reason=reason, compulsory=True, cause=cause))

    def release_waits(self) -> None:
        """The store cannot be reached: nobody need wait for it to hear of subscriptions."""
        for connection in tuple(self.present.values()):
            connection.subscriber.release_waits()

    def hold_back(self, held: bool) -> None:
        """The broker is behind with its log: read no more from those who publish to it, or go on."""
        for connection in self.origins:
            connection.hold_back(held)
