"""Client certificates: the user that one names, and whether it is still good while its client is connected.

TLS checks a certificate once, at the handshake. Clients stay for months. So what a certificate was believed for is
remembered (``ClientCertificate``), and asked again (``Trust.problem``) when the files of authorities or the list of
revoked certificates change, and when the certificate ends.

**Lists that end.** A list of revoked certificates says until when there will be a newer one. When that time has passed
and none came, TLS lets nobody in with a certificate of that authority: a list that is withheld must not let a revoked
certificate pass. Those that are connected stay. ``Trust.list_problem`` says so before and after. For the same reason a
list does not take the place of a newer one of the same authority (``Trust.check_newer``).

**Authorities that are revoked.** TLS asks for the list of the authority that issued the client's certificate, and no
further up. A list of the authority above may name that issuer: then it vouches for nobody, nor do those that it
vouches for.

The user's name is the common name, or the one alternative name of a kind, as ``tls.client_name`` has it. Two names are
none: which would it be? A URI is percent-encoded, since a user's name has no colon and no slash.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from tocsin.config import ClientName, Tls
from tocsin.errors import OperatorError

FILE_MAX_BYTES: Final = 64 << 20  # a list of a million revoked certificates has some 40 MB
_MARK: Final = b"-----BEGIN X509 CRL-----"
NOT_AUTHORIZED: Final = 0x87
ADMINISTRATIVE_ACTION: Final = 0x98


class ClientCertificate(msgspec.Struct, frozen=True):
    """A certificate that was verified, as the broker remembers it."""

    name: str | None  # of the user; None: it names none, or several
    serial: int
    issuer: bytes  # the name of who issued it, as it is encoded
    voucher: bytes  # fingerprint of the authority that issued it; empty: one between that and the client did
    ends_s: float  # by the wall's clock


class Problem(msgspec.Struct, frozen=True):
    """Why a certificate is good no more, and the reason code for that."""

    words: str
    reason_code: int = NOT_AUTHORIZED


class _List(msgspec.Struct, frozen=True):
    """A list of revoked certificates."""

    issuer: bytes  # its name, as it is encoded
    name: str  # the same, as text
    signer: bytes  # fingerprint of the authority that signed it
    serials: frozenset[int]
    made: datetime.datetime
    number: int | None  # which grows from list to list (RFC 5280, 5.2.3); None: it has none
    ends_s: float | None  # by the wall's clock

    def is_older(self, other: _List) -> bool:
        """Whether another list of the same authority is newer: by number, or by date if one of them has none."""
        if self.number is not None and other.number is not None and self.number != other.number:
            return self.number < other.number
        return self.made < other.made

    @property
    def edition(self) -> str:
        """The list's number and date, in words."""
        number = "" if self.number is None else f"number {self.number}, "
        return f"{number}{self.made:%Y-%m-%d %H:%M:%S} UTC"


class Trust:
    """The authorities and revocations of one reading of the files."""

    def __init__(self, settings: Tls) -> None:
        """Read the files; ``OperatorError`` if they cannot be used."""
        self._kind: ClientName = settings.client_name
        self._crl = settings.client_crl
        self._authorities = _authorities(settings.client_ca)
        self._lists = _revoked(self._crl, self._authorities) if self._crl else ()
        self._revoked: dict[bytes, frozenset[int]] = {}  # serials by issuer; authorities may share a name
        for each in self._lists:
            self._revoked[each.issuer] = self._revoked.get(each.issuer, frozenset()) | each.serials
        self._vouchers = frozenset(_fingerprint(found) for found in self._believed())
        self._ends = [(found.ends_s, found.name) for found in self._lists if found.ends_s is not None]
        self._unlisted = _unlisted(self._authorities, self._lists) if self._crl else ""

    def certificate(self, connection: Any) -> ClientCertificate | None:
        """The certificate that a client showed and TLS believed; None if it showed none.

        ``connection`` is what a transport has as ``ssl_object``.
        """
        data = connection.getpeercert(binary_form=True) if connection is not None else None
        if not data:
            return None
        found = x509.load_der_x509_certificate(data)
        voucher = next((each for each in self._authorities if _issued(each, found)), None)
        return ClientCertificate(
            _name(found, self._kind),
            found.serial_number,
            found.issuer.public_bytes(),
            b"" if voucher is None else _fingerprint(voucher),
            found.not_valid_after_utc.timestamp(),
        )

    def problem(self, certificate: ClientCertificate) -> Problem | None:
        """Why a certificate that was good is so no more; None if it is."""
        if certificate.ends_s <= time.time():
            return Problem("the client's certificate has ended")
        if certificate.serial in self._revoked.get(certificate.issuer, ()):
            return Problem("the client's certificate was revoked")
        if certificate.voucher and certificate.voucher not in self._vouchers:
            return Problem("the authority of the client's certificate is believed no more")
        return None

    def check_newer(self, before: Trust) -> None:
        """``OperatorError`` if a list is older than the one of the same authority before, unless that is of a time to
        come: then a clock was wrong."""
        now = datetime.datetime.now(datetime.UTC)
        in_use = {each.signer: each for each in before._lists if each.made <= now}
        for each in self._lists:
            if (newest := in_use.get(each.signer)) is not None and each.is_older(newest):
                raise OperatorError(
                    f"{self._crl} (tls.client_crl) cannot be used: the list of {each.name} is of {each.edition}, and "
                    f"the one in use of {newest.edition}",
                    "Give the newest list; to go back to an older one, restart the broker with it",
                )

    def _believed(self) -> list[x509.Certificate]:
        """The authorities that no list of an authority above them names."""
        believed = [each for each in self._authorities if not self._is_revoked(each)]
        while True:  # an authority whose signer is revoked counts as revoked too, down to the last
            bad = [each for each in self._authorities if each not in believed]
            left = [each for each in believed if not any(_issued(above, each) for above in bad)]
            if len(left) == len(believed):
                return believed
            believed = left

    def _is_revoked(self, certificate: x509.Certificate) -> bool:
        return certificate.serial_number in self._revoked.get(certificate.issuer.public_bytes(), ())

    def list_problem(self, within_s: float = 0) -> str | None:
        """Which list of revoked certificates is missing, has ended, or ends within so many seconds; what follows."""
        if self._unlisted:
            return (
                f"tls.client_crl has no list of revoked certificates of {self._unlisted}: nobody is let in with a "
                "certificate of that authority until it has one"
            )
        now = datetime.datetime.now(datetime.UTC)
        for each in self._lists:
            if each.made > now:
                return (
                    f"the list of revoked certificates of {each.name} begins on {each.made:%Y-%m-%d %H:%M} UTC only: "
                    "until then nobody is let in with a certificate of that authority. Are the clocks right?"
                )
        ends_s, name = min(self._ends, default=(math.inf, ""))
        if ends_s > time.time() + within_s:
            return None
        when = datetime.datetime.fromtimestamp(ends_s, datetime.UTC)
        ended, lets = ("ended", "nobody is") if ends_s <= time.time() else ("ends", "then nobody is")
        return (
            f"the list of revoked certificates of {name} {ended} on {when:%Y-%m-%d %H:%M} UTC: {lets} let in with a "
            "certificate of that authority until tls.client_crl has a newer one"
        )

    def doubts(self, certificate: ClientCertificate, before: Trust) -> Problem | None:
        """The same after a change; who cannot be judged by the files has to show its certificate once more."""
        if problem := self.problem(certificate):
            return problem
        if not certificate.voucher and not before._vouchers <= self._vouchers:
            return Problem(
                "an authority is believed no more: show the certificate again", ADMINISTRATIVE_ACTION
            )
        return None


def _name(certificate: x509.Certificate, kind: ClientName) -> str | None:
    if kind == "common-name":
        found = [each.value for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        names = [each if isinstance(each, str) else each.decode("utf-8", "replace") for each in found]
        return names[0] if len(names) == 1 else None
    try:
        others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return None
    if kind == "email":
        names = others.get_values_for_type(x509.RFC822Name)
    elif kind == "dns":
        names = others.get_values_for_type(x509.DNSName)
    else:
        names = [quote(each, safe="") for each in others.get_values_for_type(x509.UniformResourceIdentifier)]
    return names[0] if len(names) == 1 and "*" not in names[0] else None


def _authorities(path: str) -> tuple[x509.Certificate, ...]:
    if not path:
        return ()
    try:
        return tuple(x509.load_pem_x509_certificates(_read(path, "tls.client_ca")))
    except ValueError:
        raise OperatorError(
            f"{path} (tls.client_ca) has no certificate in it",
            "Give a PEM file: it begins with -----BEGIN CERTIFICATE-----",
        ) from None


def _revoked(path: str, authorities: tuple[x509.Certificate, ...]) -> tuple[_List, ...]:
    """The newest list of each authority in a file. A list that is out of date, or not the authority's own, would keep
    everybody out. Lists of strangers do no harm beside: so an authority can be removed before its list is."""
    data = _read(path, "tls.client_crl")
    found: list[_List] = []
    stranger = ""
    for part in data.split(_MARK)[1:]:
        try:
            listed = x509.load_pem_x509_crl(_MARK + part)
            ends = listed.next_update_utc
        except ValueError:
            raise _unusable(path, "it is not a list of revoked certificates") from None
        signer = next((each for each in authorities if _signed(each, listed)), None)
        if signer is None:
            stranger = listed.issuer.rfc4514_string()
            continue
        if ends is not None and ends.timestamp() <= time.time():
            raise _unusable(path, f"the list of {listed.issuer.rfc4514_string()} ended on {ends:%Y-%m-%d}")
        found.append(
            _List(
                listed.issuer.public_bytes(),
                listed.issuer.rfc4514_string(),
                _fingerprint(signer),
                frozenset(each.serial_number for each in listed),
                listed.last_update_utc,
                _number(listed),
                None if ends is None else ends.timestamp(),
            )
        )
    if stranger and _unlisted(authorities, found):
        raise _unusable(path, f"the list of {stranger} is not of an authority in tls.client_ca")
    if not found:
        raise _unusable(path, "there is no list of revoked certificates in it")
    newest: dict[bytes, _List] = {}
    for each in found:
        if each.signer not in newest or newest[each.signer].is_older(each):
            newest[each.signer] = each
    return tuple(newest.values())


def _number(listed: x509.CertificateRevocationList) -> int | None:
    try:
        return listed.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (x509.ExtensionNotFound, ValueError):
        return None


def _unlisted(authorities: Sequence[x509.Certificate], lists: Sequence[_List]) -> str:
    """The authority whose clients TLS cannot let in for want of its list; empty: none.

    One that issued others of the file need not have a list: it may issue nothing else.
    """
    listed = {each.signer for each in lists}
    for each in authorities:
        others = (other for other in authorities if other is not each)
        if _fingerprint(each) not in listed and not any(_issued(each, other) for other in others):
            return each.subject.rfc4514_string()
    return ""


def _fingerprint(certificate: x509.Certificate) -> bytes:
    return certificate.fingerprint(hashes.SHA256())


def _signed(authority: x509.Certificate, listed: x509.CertificateRevocationList) -> bool:
    key = authority.public_key()
    return authority.subject == listed.issuer and listed.is_signature_valid(key)  # type: ignore[arg-type]


def _issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    if authority.subject != certificate.issuer:
        return False
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # the library raises several kinds; none of them says that it was
        return False
    return True


def _read(path: str, setting: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(FILE_MAX_BYTES)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OperatorError(
            f"{path} ({setting}) cannot be read: {reason[:1].lower()}{reason[1:]}",
            f"Give a PEM file that this process may read, or leave {setting} out",
        ) from None


def _unusable(path: str, reason: str) -> OperatorError:
    return OperatorError(
        f"{path} (tls.client_crl) cannot be used: {reason}",
        "Give a PEM file with the newest list of each authority that issues client certificates",
    )
