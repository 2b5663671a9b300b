"""Admission: which clients may connect to a broker, as which user, and in which order when many come at once.

A client is welcome while there is room (else it is told of a broker that has some, if one is known) who has

    a client certificate      the name in it is the user, whatever the CONNECT says
    a user name               proven by the password, if there is a file of users; ``CheckPassword`` asks the shell for
                              that, since it takes long. A wrong one is refused wherever it comes from
    neither                   nobody in particular: let in from where the policy allows it

Where being on this machine is the only proof, a page in a browser of this machine would have it as well, whosever page
it is. So a WebSocket that names its page (``Origin``) is let in by that proof only if the page is this machine's own,
or ``access.origins`` has it. Other names of this machine do not count: a name can be made to mean any address.

Where there are neither a file of users nor users who registered, a user name cannot be proven: the client is treated as
one without, and its name counts for nothing in the rules.

A connection about **accounts** (``core.access.registration``) carries passwords that are chosen, in its packets. So it
is let in where nobody can listen: over TLS, or on this machine. Names of users who registered begin with ``~``; nobody
has such a name by a certificate.

**A crowd.** When a broker is lost its clients come to its backup within a second. Each costs the broker a fraction of a
millisecond, and meanwhile it has others to serve. So of the CONNECTs that arrive in one turn of the loop SLICE are
answered at once, and the others wait in line (``Crowd``): SLICE of them in each of the next turns, with everybody
else's packets in between.

In line the healthy come first. **Sick** is a client or an address that was refused lately, whose handshake failed, or
that comes and goes: it has FAULTS_MAX faults or more, and each fault is forgotten after FORGIVEN_US. A sick client is
not refused, and waits only while others wait: SICK_SHARE places of every turn are for the sick, so that nobody waits
for ever.

Invariants of a crowd: nobody waits while there is a free place in a turn; each turn lets SLICE in at most; no more than
REMEMBERED_MAX faults are remembered, the newest. Who waits is bounded by the listener: each has a socket.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from tocsin.core.access.accounts import MARK, is_registered
from tocsin.core.session.signals import Authenticate, Rejected
from tocsin.core.survival.homes import PROPERTY_STAY
from tocsin.model.network import Scheme

EVERY_ORIGIN: Final = "*"
SLICE: Final = 32  # at 0.3 ms each some ten milliseconds of a turn
SICK_SHARE: Final = 4  # of those, at least, if there are sick ones
FAULTS_MAX: Final = 3  # within FORGIVEN_US: once or twice happens to everybody
FORGIVEN_US: Final = 60_000_000
BRIEF_US: Final = 2_000_000  # a connection that ends sooner is a fault
REMEMBERED_MAX: Final = 10_000  # names with faults, some 150 B each
PARSED_MAX: Final = 1_024  # addresses whose meaning is remembered: most clients come back, or from behind one

CLIENT_ID_NOT_VALID: Final = 0x85
BAD_USER_NAME_OR_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_BUSY: Final = 0x89
USE_ANOTHER_SERVER: Final = 0x9C
RATE_EXCEEDED: Final = 0x9F

Anonymous = Literal["loopback", "always", "never"]
T = TypeVar("T")


class Origin(msgspec.Struct, frozen=True):
    """Where a connection comes from, as far as the server knows without asking it."""

    address: str = ""  # the remote IP address; empty: not known, so never this machine's own
    certificate_name: str | None = None  # the user that a client certificate names, which was checked
    scheme: Scheme = Scheme.MQTT  # of the listener that it came to
    page: str | None = None  # the origin of the web page that opened it, as a browser says; None: no page
    nameless: bool = False  # a client certificate was shown and is good, and names nobody
    passed_on: bool = False  # by a coordinator's door, because it cannot be redirected or did not follow


class Policy(msgspec.Struct, frozen=True):
    """A broker's rules for admitting clients."""

    users: bool = False  # there is a file of users, or users register
    anonymous: Anonymous = "always"
    origins: tuple[str, ...] = ()  # of pages that are let in where loopback is the only proof; "*": all
    certified: bool = False  # over TLS only clients with a certificate are let in
    plain: bool = True  # there is a way in without TLS
    registers: bool = False  # users may have accounts that they made themselves


class Admitted(msgspec.Struct, frozen=True):
    """The peer may come in; ``user`` is what it has proven to be called, empty if nothing."""

    user: str = ""


class CheckPassword(msgspec.Struct, frozen=True):
    """The peer may come in if this is the user's password."""

    user: str
    password: bytes


UNKNOWN: Final = Origin()
WELCOMING: Final = Policy()


class Admission:
    """Decides who may connect to one broker."""

    def __init__(self, connections_max: int, policy: Policy = WELCOMING) -> None:
        self._connections_max = connections_max
        self._policy = policy
        self.drains = False  # the broker is being emptied: it takes no client that could go elsewhere

    def decide(
        self,
        asked: Authenticate,
        connections: int,
        origin: Origin = UNKNOWN,
        refuge: Callable[[Scheme], str | None] = lambda scheme: None,
    ) -> Admitted | CheckPassword | Rejected:
        """Whether a peer may come in, when so many are in already; ``refuge`` is where else it could."""
        if asked.accounts:
            return self._decide_accounts(asked, origin)
        if connections >= self._connections_max:
            reason = f"this broker serves no more than {self._connections_max} clients"
            reference = refuge(origin.scheme)
            code = SERVER_BUSY if reference is None else USE_ANOTHER_SERVER
            return _rejected(asked, code, reason, reference)
        if self.drains and not asked.aside and (PROPERTY_STAY, "yes") not in asked.user_properties:
            reference = refuge(origin.scheme)
            if reference is not None:  # else it is better off here
                return _rejected(asked, USE_ANOTHER_SERVER, "this broker is being emptied", reference)
        return self._decide_client(asked, origin)

    def _decide_client(self, asked: Authenticate, origin: Origin) -> Admitted | CheckPassword | Rejected:
        if origin.certificate_name is not None:
            if self._policy.registers and is_registered(origin.certificate_name):
                reason = f"names that begin with {MARK} are of users who register: no certificate proves them"
                return _rejected(asked, NOT_AUTHORIZED, reason)
            return Admitted(origin.certificate_name)
        if origin.passed_on and (problem := self._keeps_out(origin)):
            return _rejected(asked, NOT_AUTHORIZED, problem)
        if asked.username and self._policy.users:
            return CheckPassword(asked.username, asked.password or b"")
        anonymous = self._policy.anonymous
        if anonymous == "always":
            return Admitted()
        if anonymous == "loopback" and is_loopback(origin.address):
            if origin.page is None or self._is_trusted(origin.page):
                return Admitted()
            reason = f"pages of {origin.page} may not connect without proving a name (access.origins)"
            return _rejected(asked, NOT_AUTHORIZED, reason)
        if origin.nameless:
            reason = (
                "the client's certificate has no name of the kind that tls.client_name asks for, or several"
            )
            return _rejected(asked, NOT_AUTHORIZED, reason)
        if self._policy.users:
            return _rejected(asked, NOT_AUTHORIZED, "a user name and a password are needed")
        if anonymous == "never":
            return _rejected(asked, NOT_AUTHORIZED, "a client certificate is needed")
        reason = "only clients on the broker's own machine may connect without proving who they are"
        return _rejected(asked, NOT_AUTHORIZED, reason)

    def _decide_accounts(self, asked: Authenticate, origin: Origin) -> Admitted | Rejected:
        """Whether a connection may come in that makes, changes and removes accounts. It proves nothing by itself."""
        if not self._policy.registers:
            reason = "nobody can register here (access.registration is off): ask the operator for an account"
            return _rejected(asked, NOT_AUTHORIZED, reason)
        if origin.passed_on and (problem := self._keeps_out(origin)):
            return _rejected(asked, NOT_AUTHORIZED, problem)
        if origin.scheme in (Scheme.MQTTS, Scheme.WSS):
            return Admitted()
        if not is_loopback(origin.address):
            reason = "passwords must not travel in clear text: connect over TLS (mqtts:// or wss://)"
            return _rejected(asked, NOT_AUTHORIZED, reason)
        if origin.page is not None and not self._is_trusted(origin.page):
            reason = f"pages of {origin.page} may not register without TLS (access.origins)"
            return _rejected(asked, NOT_AUTHORIZED, reason)
        return Admitted()

    def _keeps_out(self, origin: Origin) -> str:
        """Why a client would not get in by itself in the way in which it came to a coordinator's door.

        The door is no way around what the broker's own listeners ask for.
        """
        is_plain = origin.scheme == Scheme.MQTT
        if is_plain and not self._policy.plain:
            return "this broker takes no clients without TLS, nor does it from a coordinator's door"
        if not is_plain and self._policy.certified:
            return "a client certificate is needed, and passes through no door: connect to a broker itself"
        return ""

    def _is_trusted(self, page: str) -> bool:
        """Whether a page may use the proof that its browser is on this machine."""
        origins = self._policy.origins
        if page in origins or EVERY_ORIGIN in origins:
            return True
        try:
            host = urlsplit(page).hostname
        except ValueError:
            return False
        return host is not None and (host == "localhost" or is_loopback(host))


def password_refused(asked: Authenticate) -> Rejected:
    """The answer to a password that is not the user's, and to a user that there is not: they must not differ."""
    return _rejected(asked, BAD_USER_NAME_OR_PASSWORD, "the user name or the password is wrong")


def _rejected(asked: Authenticate, code: int, reason: str, reference: str | None = None) -> Rejected:
    return Rejected(cause=asked.cause, reason_code=code, reason=reason, server_reference=reference)


@lru_cache(maxsize=PARSED_MAX)
def is_loopback(address: str) -> bool:
    """Whether an IP address is this machine's own: 127.0.0.0/8 or ::1, also when written as an IPv6 address."""
    parsed = _parsed(address)
    return parsed is not None and parsed.is_loopback


def source_of(address: str) -> str:
    """The key under which connections from an address are counted: an IPv6 network of /64 is as good as one machine."""
    parsed = _parsed(address)
    if not isinstance(parsed, ipaddress.IPv6Address):
        return address if parsed is None else str(parsed)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


@lru_cache(maxsize=PARSED_MAX)
def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped) or parsed


class Crowd(Generic[T]):
    """The clients that come to one broker. Tokens stand for those that wait."""

    def __init__(self) -> None:
        self._taken = 0  # places of this turn
        self._well: deque[T] = deque()
        self._sick: deque[T] = deque()
        self._faults: dict[str, tuple[int, int]] = {}  # name → how many, and when the last; oldest first

    def __len__(self) -> int:
        """How many wait."""
        return len(self._well) + len(self._sick)

    def comes(self, token: T, names: tuple[str, ...], now_us: int) -> bool:
        """A client has come, which has these names (its id, its address): whether it is its turn at once."""
        if self._taken < SLICE and not len(self):
            self._taken += 1
            return True
        (self._sick if self.is_sick(names, now_us) else self._well).append(token)
        return False

    def turn(self) -> list[T]:
        """A turn begins: those that are let in now."""
        self._taken = 0
        found: list[T] = []
        sick = min(len(self._sick), max(SICK_SHARE, SLICE - len(self._well)))
        while self._well and len(found) < SLICE - sick:
            found.append(self._well.popleft())
        while self._sick and len(found) < SLICE:
            found.append(self._sick.popleft())
        self._taken = len(found)
        return found

    # ── who is sick ─────────────────────────────────────────────────────────────────────────────────────────

    def fault(self, name: str, now_us: int) -> None:
        """A client, or an address, was refused, failed its handshake, or came and went."""
        if not name:
            return
        count, at_us = self._faults.pop(name, (0, now_us))
        self._faults[name] = (count + 1 if now_us - at_us < FORGIVEN_US else 1, now_us)
        if len(self._faults) > REMEMBERED_MAX:
            del self._faults[next(iter(self._faults))]

    def is_sick(self, names: tuple[str, ...], now_us: int) -> bool:
        for name in names:
            count, at_us = self._faults.get(name, (0, 0))
            if count >= FAULTS_MAX and now_us - at_us < FORGIVEN_US:
                return True
        return False
