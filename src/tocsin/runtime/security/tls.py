"""TLS as the settings ask for it, with certificates that can change while clients are connected.

There is one context for as long as the process lives; listeners are given it. At every handshake it hands
over to the **current** context, made from the files as they were read last; so a renewed certificate counts for new
connections, and those that are there notice nothing. (The hand-over is the callback for the server's name, which is
also called for clients that name none.)

TLS 1.2 is the oldest version; ciphers are those of the system's OpenSSL. ``client_context`` is for the calling side.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tocsin.config import Tls
from tocsin.errors import OperatorError
from tocsin.runtime.security.followed_files import Signature, signature

if TYPE_CHECKING:
    from tocsin.runtime.security.client_certificates import ClientCertificate, Problem, Trust

_VERIFY: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Certificates:
    """The certificate of a broker and the authorities it believes; ``context`` is for its listeners."""

    def __init__(self, settings: Tls) -> None:
        """Read the files; ``OperatorError`` if they cannot be used."""
        self._settings = settings
        self._signatures = self._signatures_now()
        self._current = server_context(settings)
        self._trust = self._before = self._read_trust()
        self.context = server_context(settings)
        self.context.sni_callback = self._hand_over

    def reload(self) -> bool:
        """Read the files again if one changed; whether it did.

        ``OperatorError`` if they cannot be used; then the certificate stays as it was.
        """
        found = self._signatures_now()
        if found == self._signatures:
            return False
        self._signatures = found  # once a change: bad files are complained about once
        current, trust = server_context(self._settings), self._read_trust()
        if trust is not None and self._trust is not None:
            trust.check_newer(self._trust)
        self._current, self._before, self._trust = current, self._trust, trust
        return True

    def client(self, connection: Any) -> ClientCertificate | None:
        """The certificate that a client showed and that was believed; ``connection`` is a transport's ssl_object."""
        return None if self._trust is None else self._trust.certificate(connection)

    def problem(self, certificate: ClientCertificate) -> Problem | None:
        """Why a certificate that was believed is good no more; None if it is."""
        return None if self._trust is None else self._trust.problem(certificate)

    def doubts(self, certificate: ClientCertificate) -> Problem | None:
        """The same after ``reload``, where some that cannot be judged have to be shown once more."""
        if self._trust is None or self._before is None:
            return None
        return self._trust.doubts(certificate, self._before)

    def list_problem(self, within_s: float = 0) -> str | None:
        """Which list of revoked certificates has ended, or does so soon; None: none."""
        return None if self._trust is None else self._trust.list_problem(within_s)

    def _read_trust(self) -> Trust | None:
        if self._settings.client_certificates == "none":
            return None
        from tocsin.runtime.security.client_certificates import (
            Trust,  # a twentieth of a second, where it is needed
        )

        return Trust(self._settings)

    def _hand_over(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _signatures_now(self) -> tuple[Signature, ...]:
        settings = self._settings
        return tuple(
            signature(path)
            for path in (settings.certificate, settings.key, settings.client_ca, settings.client_crl)
        )


def server_context(settings: Tls) -> ssl.SSLContext:
    """A context for a server with these files; ``OperatorError`` says which of them cannot be used, and why."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for name in ("certificate", "key", "client_ca", "client_crl"):
        _check_readable(f"tls.{name}", getattr(settings, name))
    try:
        context.load_cert_chain(settings.certificate, settings.key, password=_no_passphrase)
    except ssl.SSLError as error:
        raise _bad_pair(settings, error) from None
    except _Encrypted:
        raise OperatorError(
            f"the key {settings.key} (tls.key) has a passphrase",
            "Store it without one: openssl pkey -in KEY -out PLAIN, readable by the broker only",
        ) from None
    context.verify_mode = _VERIFY[settings.client_certificates]
    if context.verify_mode != ssl.CERT_NONE:
        # A ticket would let a client back in without its certificate, which may no longer be believed.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    if settings.client_ca:
        try:
            context.load_verify_locations(settings.client_ca)
        except ssl.SSLError:
            raise OperatorError(
                f"{settings.client_ca} (tls.client_ca) has no certificate in it",
                "Give a PEM file: it begins with -----BEGIN CERTIFICATE-----",
            ) from None
    if settings.client_crl:
        try:
            context.load_verify_locations(settings.client_crl)
        except ssl.SSLError:
            raise OperatorError(
                f"{settings.client_crl} (tls.client_crl) has no list of revoked certificates in it",
                "Give a PEM file: it begins with -----BEGIN X509 CRL-----",
            ) from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def client_context(
    *, authorities: str = "", certificate: str = "", key: str = "", insecure: bool = False
) -> ssl.SSLContext:
    """A context for a client, from options of the command line; ``OperatorError`` if their files cannot be used.

    Without ``authorities`` those of this machine are believed; ``insecure`` believes everybody.
    """
    for option, path in (("--cafile", authorities), ("--cert", certificate), ("--key", key)):
        _check_readable(option, path)
    if key and not certificate:
        raise OperatorError("--key is of no use without --cert", "Name the certificate that it belongs to")
    try:
        context = ssl.create_default_context(cafile=authorities or None)
    except ssl.SSLError:
        raise OperatorError(
            f"{authorities} (--cafile) has no certificate in it",
            "Give a PEM file: it begins with -----BEGIN CERTIFICATE-----",
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        try:
            context.load_cert_chain(certificate, key or None, password=_no_passphrase)
        except (ssl.SSLError, _Encrypted):
            raise OperatorError(
                f"{certificate} (--cert) and {key or certificate} (--key) are not a certificate and its key",
                "Give PEM files that belong together, the key without a passphrase",
            ) from None
    return context


class _Encrypted(Exception):
    pass


def _no_passphrase() -> str:
    raise _Encrypted


def _check_readable(name: str, path: str) -> None:
    if not path:
        return
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OperatorError(
            f"{path} ({name}) cannot be read: {reason[:1].lower()}{reason[1:]}",
            f"Give a PEM file that this process may read, or leave {name} out",
        ) from None


def _bad_pair(settings: Tls, error: ssl.SSLError) -> OperatorError:
    if error.reason == "KEY_VALUES_MISMATCH":
        return OperatorError(
            f"the key {settings.key} (tls.key) is not that of the certificate {settings.certificate}",
            "Name the two files that belong together",
        )
    return OperatorError(
        f"the certificate {settings.certificate} (tls.certificate) and key {settings.key} (tls.key) "
        f"cannot be used: {(error.reason or 'they are not PEM').lower().replace('_', ' ')}",
        "Give PEM files: they begin with -----BEGIN",
    )
