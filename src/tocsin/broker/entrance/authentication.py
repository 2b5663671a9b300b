"""The user and the rights of a connection: asked once at CONNECT, and again when users or rules change.

``core.access.admission`` decides; a password that has to be checked is checked in a thread
(``runtime.security.users``), and the connection is told later. The proof is kept here for as long as the connection
lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tocsin.broker.connection.connection import Connection
from tocsin.broker.entrance.clients import Clients
from tocsin.broker.entrance.passed_on import PASSED_ON
from tocsin.core.access.admission import (
    CLIENT_ID_NOT_VALID,
    NOT_AUTHORIZED,
    RATE_EXCEEDED,
    SERVER_BUSY,
    USE_ANOTHER_SERVER,
    Admission,
    Admitted,
    CheckPassword,
    Origin,
    password_refused,
)
from tocsin.core.access.rights import Who
from tocsin.core.session.signals import Authenticate, Authenticated, Rejected, WireFailed
from tocsin.errors import ProtocolViolation
from tocsin.model.network import Scheme
from tocsin.runtime.machines.clock import wall_s
from tocsin.runtime.security.files import Changed, Guard
from tocsin.runtime.security.users import UsersBusy
from tocsin.wire.proxy_header import PassedOn

if TYPE_CHECKING:
    from tocsin.runtime.security.client_certificates import ClientCertificate, Problem

LOOK_AGAIN_S: Final = 3_600.0  # at a certificate that lasts longer
MOMENT_S: Final = 0.01  # so that a timer does not fire before its time by another clock


class Authenticator:
    """Asks connections who they are. ``clients`` are those who are in; ``refuge`` is where clients of a scheme can
    go if there are too many, ``sent_on`` where one is waited for. If it ``asks``, each client has to be ``entitled`` to
    its client id, as a user.
    """

    def __init__(
        self,
        admission: Admission,
        guard: Guard,
        clients: Clients,
        refuge: Callable[[Scheme], str | None],
        sent_on: Callable[[Authenticate, Scheme], str | None] = lambda asked, scheme: None,
        *,
        asks: bool,
        entitled: Callable[[str, str], Awaitable[bool]],
        refused: Callable[[Authenticate, Origin], None] = lambda asked, origin: None,
        logged_in: Callable[[str], None] = lambda user: None,
    ) -> None:
        self.refused = 0  # clients that were turned away
        self._admission = admission
        self._guard = guard
        self._clients = clients
        self._refuge = refuge
        self._sent_on = sent_on
        self._asks = asks
        self._entitled = entitled
        self._told_refused = refused  # told of each client that is refused
        self._told_logged_in = logged_in  # told of each user who comes in
        self._checks: dict[Connection, asyncio.Task[None]] = {}  # of those whose password is looked at
        self._certified: dict[Connection, ClientCertificate] = {}  # of clients that showed a certificate
        self._ends: dict[Connection, asyncio.TimerHandle] = {}  # of the same: when it is looked at again
        self._log = structlog.get_logger()

    def forget(self, connection: Connection) -> None:
        """A connection is over. Harmless when repeated."""
        self._clients.forget(connection)
        self._certified.pop(connection, None)
        if (timer := self._ends.pop(connection, None)) is not None:
            timer.cancel()
        check = self._checks.pop(connection, None)
        if check is not None:
            check.cancel()

    def close(self) -> None:
        for check in self._checks.values():
            check.cancel()
        for timer in self._ends.values():
            timer.cancel()
        self._guard.close()

    # ── certificates ────────────────────────────────────────────────────────────────────────────────────────

    def origin(self, connection: Connection, transport: asyncio.BaseTransport) -> Origin:
        """Where a connection comes from, and who its certificate says it is."""
        certificates = self._guard.certificates
        tls = None if certificates is None else transport.get_extra_info("ssl_object")
        shown = None if certificates is None or tls is None else certificates.client(tls)
        if shown is None:
            return origin_of(transport)
        self._certified[connection] = shown
        self._watch(connection, shown)
        found = origin_of(transport, shown.name)
        return msgspec.structs.replace(found, nameless=shown.name is None)

    def _watch(self, connection: Connection, certificate: ClientCertificate) -> None:
        """Look again when the certificate ends; at times before that, for the wall's clock may be put forward."""
        delay_s = min(max(certificate.ends_s - wall_s(), 0.0) + MOMENT_S, LOOK_AGAIN_S)
        self._ends[connection] = asyncio.get_running_loop().call_later(delay_s, self._look_again, connection)

    def _look_again(self, connection: Connection) -> None:
        self._ends.pop(connection, None)
        if (problem := self._problem(connection)) is not None:
            self._dismiss(connection, problem)
        elif (certificate := self._certified.get(connection)) is not None:
            self._watch(connection, certificate)

    def _problem(self, connection: Connection) -> Problem | None:
        """Why its certificate is good no more; None if it is, or there is none."""
        certificate, certificates = self._certified.get(connection), self._guard.certificates
        return None if certificate is None or certificates is None else certificates.problem(certificate)

    def _dismiss(self, connection: Connection, problem: Problem) -> None:
        self._log.info(
            "a client's certificate is good no more", subscriber=connection.client_id, problem=problem.words
        )
        error = ProtocolViolation(problem.words, problem.reason_code)
        connection.post(WireFailed(error=error, cause=f"certificate:{connection.client_id}"))

    # ── coming in ───────────────────────────────────────────────────────────────────────────────────────────

    def authenticate(
        self, asked: Authenticate, connection: Connection, origin: Origin
    ) -> Authenticated | Rejected | None:
        """Whether a connection may come in. None: that takes a while, and the connection will be told."""
        answer = self._decide(asked, origin)
        if isinstance(answer, CheckPassword):
            users = self._guard.users
            assert users is not None, "the policy asks for passwords only where there are users"
            if users.problem(answer.user) or not users.recall(answer.user, answer.password):
                check = self._check_password(asked, connection, origin, answer)
                self._checks[connection] = connection.spawn(check)
                return None
            answer = Admitted(answer.user)
        if isinstance(answer, Rejected):
            return self._refuse(answer, asked, origin)
        if not self._asks or asked.aside:
            return self._let_in(asked, connection, answer, origin)
        proof = self._prove(asked, connection, origin, answer)
        self._checks[connection] = connection.spawn(proof)
        return None

    def _decide(self, asked: Authenticate, origin: Origin) -> Admitted | CheckPassword | Rejected:
        """A connection beside a client's own needs no room among the clients: the listener bounds those by
        themselves."""
        clients = 0 if asked.aside else len(self._clients.present)
        return self._admission.decide(asked, clients, origin, self._refuge)

    async def _prove(
        self, asked: Authenticate, connection: Connection, origin: Origin, admitted: Admitted
    ) -> None:
        """Let a client in if its id is its user's to have, in the whole network."""
        answer = await self._let_in_as_owner(asked, connection, origin, admitted)
        del self._checks[connection]
        connection.post(answer)

    async def _let_in_as_owner(
        self, asked: Authenticate, connection: Connection, origin: Origin, admitted: Admitted
    ) -> Authenticated | Rejected:
        if self._asks and not asked.aside and not await self._entitled(asked.client_id, admitted.user):
            reason = "this client id belongs to another user"
            return self._refuse(_rejected(asked, CLIENT_ID_NOT_VALID, reason), asked, origin)
        again = self._decide(asked, origin)
        if isinstance(
            again, Rejected
        ):  # others were asked meanwhile, and the broker has been drained, or is full
            return self._refuse(again, asked, origin)
        return self._let_in(asked, connection, admitted, origin)

    async def _check_password(
        self, asked: Authenticate, connection: Connection, origin: Origin, check: CheckPassword
    ) -> None:
        users = self._guard.users
        assert users is not None, "as authenticate() has seen"
        answer: Authenticated | Rejected
        try:
            good = await users.verify(check.user, check.password, origin.address)
            again = self._decide(asked, origin)
            if isinstance(again, Rejected):  # the broker has filled up since
                answer = self._refuse(again, asked, origin)
            elif good and (problem := users.problem(check.user)):
                answer = self._refuse(_rejected(asked, NOT_AUTHORIZED, problem), asked, origin)
            elif good:
                answer = await self._let_in_as_owner(asked, connection, origin, Admitted(check.user))
            else:
                answer = self._refuse(password_refused(asked), asked, origin)
        except UsersBusy as busy:
            code = RATE_EXCEEDED if busy.turned.why == "failures" else SERVER_BUSY
            answer = self._refuse(_rejected(asked, code, str(busy)), asked, origin)
        del self._checks[connection]
        connection.post(answer)

    def _let_in(
        self, asked: Authenticate, connection: Connection, admitted: Admitted, origin: Origin
    ) -> Authenticated | Rejected:
        if (problem := self._problem(connection)) is not None:  # since the handshake
            return self._refuse(_rejected(asked, NOT_AUTHORIZED, problem.words), asked, origin)
        who = Who(admitted.user, asked.client_id)
        if reason := self._guard.access.refusal(who):
            return self._refuse(_rejected(asked, NOT_AUTHORIZED, reason), asked, origin)
        holder = self._clients.present.get(asked.client_id)
        if holder is not None and not asked.aside and self._clients.who(holder).user not in ("", who.user):
            reason = "this client id is in use by another user"
            return self._refuse(_rejected(asked, CLIENT_ID_NOT_VALID, reason), asked, origin)
        reference = None if origin.passed_on else self._sent_on(asked, origin.scheme)
        if reference is not None:
            reason = "the client's home is gone, and another broker stands in for it"
            return self._refuse(_rejected(asked, USE_ANOTHER_SERVER, reason, reference), asked, origin)
        rights = self._guard.access.rights(who)
        if asked.will_topic is not None and not rights.may_publish(asked.will_topic):
            reason = "the client may not publish to the topic of its will"
            return self._refuse(_rejected(asked, NOT_AUTHORIZED, reason), asked, origin)
        self._clients.prove(connection, who, rights)
        if who.user:
            self._told_logged_in(who.user)
        return Authenticated(cause=asked.cause)

    def _refuse(self, answer: Rejected, asked: Authenticate, origin: Origin) -> Rejected:
        self.refused += 1
        self._told_refused(asked, origin)
        self._log.info(
            "client refused",
            subscriber=asked.client_id,
            user=asked.username,
            reason=answer.reason,
            cause=asked.cause,
        )
        return answer

    # ── when files change ───────────────────────────────────────────────────────────────────────────────────

    def changed(self, changed: Changed) -> None:
        """Users, rules or certificates are others: nobody goes on with what he no longer has."""
        certificates = self._guard.certificates
        if changed.certificates and certificates is not None:
            for connection, certificate in tuple(self._certified.items()):
                if (problem := certificates.doubts(certificate)) is not None:
                    self._dismiss(connection, problem)
        for connection, who in self._clients.proven():
            if who.user in changed.users:
                error = ProtocolViolation("the user was removed, or has another password", NOT_AUTHORIZED)
                connection.post(WireFailed(error=error, cause=f"user:{who.user}"))
            elif changed.access:
                self._clients.prove(connection, who, self._guard.access.rights(who))


def _rejected(asked: Authenticate, code: int, reason: str, reference: str | None = None) -> Rejected:
    return Rejected(cause=asked.cause, reason_code=code, reason=reason, server_reference=reference)


def origin_of(transport: asyncio.BaseTransport, name: str | None = None) -> Origin:
    """Where a connection comes from, by its socket and the name in its certificate, and by which way."""
    peer, tls = transport.get_extra_info("peername"), transport.get_extra_info("ssl_object")
    address = peer[0] if isinstance(peer, tuple) else ""
    plain, secure = (
        (Scheme.WS, Scheme.WSS) if transport.get_extra_info("websocket") else (Scheme.MQTT, Scheme.MQTTS)
    )
    passed_on: PassedOn | None = transport.get_extra_info(PASSED_ON)
    is_secure = tls is not None if passed_on is None else passed_on.tls
    return Origin(address, name, secure if is_secure else plain, passed_on=passed_on is not None)
