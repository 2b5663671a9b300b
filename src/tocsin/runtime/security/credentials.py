"""Credentials of the network's processes: where they are, and TLS contexts in which both sides prove who they are.

``runtime.security.authority`` issues them; a process only reads files. They lie in ``STATE/certs``:

    authority.pem         the authorities that are believed, newest first: two of them while one replaces the other
    authority.key         the newest authority with its private key; only where certificates are issued
    broker-north-1.pem    a process: its private key and its certificate in one file, which is replaced whole
    issued/               copies, without keys, of certificates that were issued for other machines

Every certificate names its holder with a URI among its alternative names: ``tocsin://NETWORK/ROLE/NAME``. Contexts here
check the authority only. A user of a connection checks the name with ``peer_of`` before it sends anything; a host name
is no proof, for brokers are known by name wherever they run.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from tocsin.errors import OperatorError
from tocsin.runtime.security.followed_files import Reminder, Signature, signature

BUNDLE: Final = "authority.pem"
AUTHORITY: Final = "authority.key"
ISSUED: Final = "issued"
SCHEME: Final = "tocsin"
LOOK_S: Final = 1.0  # how often files that are in use are looked at
AGAIN: Final = "Issue it again with `tocsin certs`"
SOON_S: Final = 7 * 86_400.0  # before a certificate ends: the log says so from then on
FLIGHTS: Final = 8  # that a handshake takes at most


class Identity(msgspec.Struct, frozen=True):
    """The subject of a certificate: a process of a network, by its role and name."""

    network: str
    role: str
    name: str

    @property
    def uri(self) -> str:
        return f"{SCHEME}://{self.network}/{self.role}/{self.name}"

    def __str__(self) -> str:
        return f"{self.role} {self.name}"


class Credentials(msgspec.Struct, frozen=True):
    """The files with which a process proves who it is. Certificate and key may be one file."""

    certificate_path: Path
    key_path: Path
    ca_path: Path


def certificates_directory(state: str | Path) -> Path:
    """Where a state directory has its certificates."""
    return Path(state).absolute() / "certs"


def credentials_of(directory: Path, role: str, name: str) -> Credentials:
    """Where the credentials of a process are, or will be."""
    pair = directory / f"{role}-{name}.pem"
    return Credentials(pair, pair, directory / BUNDLE)


def existing_credentials(directory: Path, role: str, name: str) -> Credentials:
    """The credentials of a process that were issued before; ``OperatorError`` says how to get them."""
    found = credentials_of(directory, role, name)
    for path in (found.certificate_path, found.ca_path):
        if not path.exists():
            raise OperatorError(
                f"{role} {name} has no certificate of this network: there is no {path}",
                f"Issue one where the network's authority is, with `tocsin certs issue {role} {name} --host HOST "
                f"--out DIR`, and copy what is in DIR to {directory}",
            )
    return found


class PeerTls:
    """TLS between processes of one network, from files that may be replaced while it is in use."""

    def __init__(self, credentials: Credentials) -> None:
        """Read the files; ``OperatorError`` if they cannot be used. A certificate that has ended is no reason not to
        serve clients: ``problem`` says so."""
        self._credentials = credentials
        self._signatures = self._signatures_now()
        self.believed: frozenset[bytes] = frozenset()  # the authorities, as they are encoded
        self._client, self._current = self._contexts()
        self._problem, self._ends_s = self._doubt(self._client, self._current)  # as the files were read …
        self._reminder = Reminder("the certificate of this process")  # … and as time goes by
        _, self.server = self._contexts()
        self.server.sni_callback = self._hand_over

    server: ssl.SSLContext  # for listeners: it lasts, and shows each caller the certificate of the moment

    @property
    def client(self) -> ssl.SSLContext:
        """The context to dial with now; ask again for each connection."""
        return self._client

    @property
    def problem(self) -> str | None:
        """Why peers will not believe us; None: they will."""
        return self.problem_within(0)

    def problem_within(self, seconds: float) -> str | None:
        """The same of a time to come, if nobody replaces the certificate before."""
        now_s = time.time()
        if self._problem is not None or now_s + seconds < self._ends_s:
            return self._problem
        ends = datetime.datetime.fromtimestamp(self._ends_s, datetime.UTC)
        verb = "has ended" if self._ends_s <= now_s else "ends"
        words = f"{self._credentials.certificate_path} {verb} ({ends:%Y-%m-%d %H:%M} UTC)"
        return f"{words}: no process of the network believes it from then on. {AGAIN}"

    def reload(self) -> bool:
        """Read the files again if one changed; whether it did.

        ``OperatorError`` if they cannot be used, or the new certificate would be believed by nobody; then all stays as
        it was. New authorities count in any case: an old one may have been stolen.
        """
        found = self._signatures_now()
        if found == self._signatures:
            return False
        self._signatures = found  # once a change: bad files are complained about once
        believed = self.believed
        client, current = self._contexts()
        problem, ends_s = self._doubt(client, current)
        if problem is not None and self.believed == believed:
            raise OperatorError(problem, AGAIN)
        self._client, self._current, self._problem, self._ends_s = client, current, problem, ends_s
        return True

    async def replaced(self) -> None:
        """Return when the files were replaced, and are read; raises as ``reload`` does. Meanwhile the log is told of a
        certificate that ends soon, or has ended."""
        while True:
            self._reminder.remind(self.problem_within(SOON_S), time.monotonic())
            await asyncio.sleep(LOOK_S)
            if await asyncio.to_thread(self.reload):
                return

    def _doubt(self, client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[str | None, float]:
        """Why a peer with the same authorities would not believe our certificate, None if it would; and when the
        certificate ends, by the wall's clock."""
        files = self._credentials
        try:
            return None, _shake_hands(client, server)
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or str(error)
            words = f"the certificate {files.certificate_path} is believed by no process with {files.ca_path}"
            return f"{words}: {reason.lower().replace('_', ' ')}", 0.0

    def _hand_over(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _signatures_now(self) -> tuple[Signature, ...]:
        files = self._credentials
        return tuple(signature(path) for path in (files.certificate_path, files.key_path, files.ca_path))

    def _contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        files = self._credentials
        found = []
        for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
            context = ssl.SSLContext(protocol)
            context.minimum_version = ssl.TLSVersion.TLSv1_3  # both sides are ours
            context.check_hostname = False  # ``peer_of`` says who it is
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_cert_chain(files.certificate_path, files.key_path, password=_no_passphrase)
                context.load_verify_locations(files.ca_path)
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
                raise OperatorError(
                    f"the certificate {files.certificate_path} with its authority {files.ca_path} "
                    f"cannot be used: {str(reason).lower().replace('_', ' ')}",
                    AGAIN,
                ) from None
            # A ticket would readmit a peer whose certificate is no longer trusted.
            context.options |= ssl.OP_NO_TICKET
            if protocol == ssl.PROTOCOL_TLS_SERVER:
                context.num_tickets = 0
            found.append(context)
        self.believed = frozenset(found[0].get_ca_certs(binary_form=True))
        return found[0], found[1]


def peer_of(connection: Any) -> Identity | None:
    """The proven identity of the other side of a TLS connection; None if its certificate names no process.

    ``connection`` is what a transport has as ``ssl_object``.
    """
    certificate: Mapping[str, Any] | None = connection.getpeercert() if connection is not None else None
    named = [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "URI"]
    found = [identity for identity in map(identity_of, named) if identity is not None]
    return found[0] if len(found) == 1 else None  # two names are none: which would it be?


def identity_of(uri: str) -> Identity | None:
    """The identity that a URI of a certificate names; None if it names no process of a network."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    role, slash, name = parts.path.removeprefix("/").partition("/")
    if parts.scheme != SCHEME or not (parts.netloc and role and slash and name) or "/" in name:
        return None
    identity = Identity(parts.netloc, role, name)
    return identity if identity.uri == uri else None


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> float:
    """A handshake between two contexts, without a network; ``SSLError`` if one does not believe the other. When the
    server's certificate ends, by the wall's clock."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(back, there)
    sides = [caller, server.wrap_bio(there, back, server_side=True)]
    for _ in range(FLIGHTS):
        for side in tuple(sides):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                sides.remove(side)
    assert not sides, "a handshake ends"
    return float(ssl.cert_time_to_seconds(str((caller.getpeercert() or {})["notAfter"])))


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")
