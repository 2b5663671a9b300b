"""The network's own certificate authority: it issues the certificates by which processes know each other.

``tocsin up`` and ``tocsin init`` make it once, in ``STATE/certs`` (``runtime.security.credentials`` says which files).
Keys are on the curve P-256, which OpenSSL and the NATS server both take. A process that changes files holds a lock on
the directory, so that several may start at once, and replaces each file whole, so that a reader never sees half of one.

An authority is replaced with an overlap. ``renew`` makes a new one, which is trusted beside the old; then every
certificate is issued again; then ``retire`` drops the old one. On a machine without the private key nothing can be
issued: the certificates there came from the machine that has it.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tocsin.config.section import NAME
from tocsin.errors import DirectoryUnusable, OperatorError
from tocsin.runtime.security.credentials import (
    AUTHORITY,
    BUNDLE,
    ISSUED,
    Credentials,
    Identity,
    credentials_of,
    identity_of,
)

ROLES: Final = ("broker", "coordinator", "pipeline", "feeder", "operator", "store")
AUTHORITY_DAYS: Final = 3_650
DAYS: Final = 365
DAYS_MAX: Final = 3_650
RENEW_BELOW: Final = 1 / 3  # of its life left, a certificate is renewed, as is usual for automatic renewal
EARLY: Final = datetime.timedelta(hours=1)  # certificates count from so long ago: clocks of machines differ
FILE_MAX_BYTES: Final = 1 << 20
HOSTS_MAX: Final = 64


class Certificate(msgspec.Struct, frozen=True):
    """The data of an issued certificate."""

    path: Path
    identity: Identity
    hosts: tuple[str, ...]
    begins: datetime.datetime
    ends: datetime.datetime
    fingerprint: str  # SHA-256, in hex
    issuer: str  # fingerprint of the authority that issued it; empty if that is not believed any more
    elsewhere: bool = False  # issued for another machine: there is no key of it here

    def ageing(self, now: datetime.datetime) -> bool:
        """Whether it is time for a new one."""
        return self.ends - now < (self.ends - self.begins) * RENEW_BELOW


class Authority:
    """The authority of a network, as the files of a directory say."""

    def __init__(self, directory: Path, network: str) -> None:
        self.directory = directory
        self.network = network

    @classmethod
    def open_or_make(cls, directory: Path, network: str = "tocsin") -> Authority:
        """The authority of a directory, made now if there is none; ``OperatorError`` if its files cannot be used."""
        authority = cls(directory, network)
        with authority._held():
            if authority.issues:
                authority._heal()
            elif not (directory / BUNDLE).exists():
                authority._make(())
            authority._believed()
        return authority

    @property
    def issues(self) -> bool:
        """Whether this machine has the key with which certificates are issued."""
        return (self.directory / AUTHORITY).exists()

    def issue(
        self,
        name: str,
        *,
        role: str,
        hosts: Sequence[str] = (),
        days: int = DAYS,
        out: Path | None = None,
    ) -> Credentials:
        """A new certificate with a new key, in place of this process's old one.

        ``hosts`` are names and addresses at which it listens. With ``out`` the files are for another machine and go to
        that directory; a copy of the certificate, without its key, stays here.
        """
        identity = self._identity(role, name)
        with self._held():
            return self._issue(identity, _hosts(hosts), days, out)

    def ensure(self, name: str, *, role: str, hosts: Sequence[str] = (), days: int = DAYS) -> Credentials:
        """The certificate that this process has; a new one if there is none, it ends soon, or it lacks a host."""
        identity, wanted = self._identity(role, name), _hosts(hosts)
        found = credentials_of(self.directory, role, name)
        with self._held():
            has = _read(found.certificate_path, self._believed()) if found.certificate_path.exists() else None
            now = _now()
            good = has is not None and has.identity == identity and set(wanted) <= set(has.hosts)
            if has is not None and good and not (self.issues and (not has.issuer or has.ageing(now))):
                return found
            if not self.issues and has is not None and has.identity == identity:
                return found  # for another host than it says: brokers look at the name only
            return self._issue(identity, wanted, days, None)

    def certificates(self) -> tuple[Certificate, ...]:
        """All that were issued and are known here, by role and name; ``OperatorError`` if a file cannot be read."""
        believed = self._believed()
        local = [path for path in self.directory.glob("*-*.pem") if path.name != BUNDLE]
        copies = self.directory.joinpath(ISSUED).glob("*.pem")
        found = [_read(path, believed) for path in local]
        found += [msgspec.structs.replace(_read(path, believed), elsewhere=True) for path in copies]
        return tuple(sorted(found, key=lambda each: (each.elsewhere, each.identity.uri)))

    def authorities(self) -> tuple[tuple[str, datetime.datetime], ...]:
        """Fingerprint and end of each authority that is believed, newest first."""
        return tuple((_fingerprint(each), each.not_valid_after_utc) for each in self._believed())

    def renew(self) -> None:
        """Make a new authority, which is believed beside the present one and issues from now on."""
        with self._held():
            self._check_issues()
            believed = self._believed()
            if len(believed) > 1:
                raise OperatorError(
                    "two authorities are believed already: one is being replaced",
                    "Finish that first with `tocsin certs rotate`",
                )
            self._make(believed)

    def reissue(self, *, ageing_only: bool = False) -> tuple[Certificate, ...]:
        """Renew the certificates of this machine, with new keys, all or those that end soon; returns their names."""
        now = _now()
        with self._held():
            self._check_issues()
            chosen = {
                each.path
                for each in self.certificates()
                if not each.elsewhere and (each.ageing(now) or not ageing_only)
            }
            for each in self.certificates():
                if each.path in chosen:
                    self._issue(each.identity, each.hosts, _days(each), None)
        return tuple(each for each in self.certificates() if each.path in chosen)

    def retire(self) -> tuple[Certificate, ...]:
        """Believe the newest authority only, unless certificates of an older one are in use: those are returned."""
        with self._held():
            self._check_issues()
            believed = self._believed()
            newest = _fingerprint(believed[0])
            left = tuple(each for each in self.certificates() if each.issuer and each.issuer != newest)
            if not left and len(believed) > 1:
                _write(self.directory / BUNDLE, _pem(believed[0]), 0o644)
        return left

    def forget(self, role: str, name: str) -> None:
        """Drop the copy of a certificate that was issued for another machine."""
        path = self.directory / ISSUED / f"{role}-{name}.pem"
        if not path.exists():
            raise OperatorError(
                f"no certificate was issued for {role} {name} elsewhere", "See `tocsin certs list`"
            )
        path.unlink()

    # ── the files ───────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """One writer at a time, of this and other processes."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise DirectoryUnusable(str(self.directory), error.strerror or str(error)) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.stat(lock).st_mode & 0o077:
                os.chmod(lock, 0o700)  # it was there before, with keys to come that are nobody else's
            yield
        except OSError as error:
            raise DirectoryUnusable(str(self.directory), error.strerror or str(error)) from None
        finally:
            os.close(lock)

    def _believed(self) -> tuple[x509.Certificate, ...]:
        path = self.directory / BUNDLE
        try:
            return tuple(x509.load_pem_x509_certificates(_bytes(path)))
        except ValueError:
            raise _unusable(path, "there is no certificate in it") from None

    def _make(self, older: tuple[x509.Certificate, ...]) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        now = _now()
        # The time makes the name of each authority its own: OpenSSL looks authorities up by name.
        title = f"authority of {now:%Y-%m-%d %H:%M:%S.%f}"
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, f"tocsin {self.network}"),
                x509.NameAttribute(NameOID.COMMON_NAME, title),
            ]
        )
        certificate = (
            _draft(name, name, key.public_key(), AUTHORITY_DAYS, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(self.directory / AUTHORITY, _private(key) + _pem(certificate), 0o600)
        _write(self.directory / BUNDLE, b"".join(map(_pem, (certificate, *older))), 0o644)

    def _heal(self) -> None:
        """Believe the authority that issues here, should its maker have been killed before it wrote that down."""
        issuing, _ = self._signer()
        believed = self._believed() if (self.directory / BUNDLE).exists() else ()
        if issuing not in believed:
            _write(self.directory / BUNDLE, b"".join(map(_pem, (issuing, *believed))), 0o644)

    def _signer(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        path = self.directory / AUTHORITY
        data = _bytes(path)
        try:
            issuing = x509.load_pem_x509_certificate(data)
            key = serialization.load_pem_private_key(data, None)
        except (ValueError, TypeError):
            raise _unusable(path, "it is not a private key with its certificate") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise _unusable(path, "the key is not of an elliptic curve")
        return issuing, key

    def _check_issues(self) -> None:
        if not self.issues:
            raise OperatorError(
                f"the key of the network's authority is not on this machine ({self.directory / AUTHORITY})",
                "Run this where the network was set up, and copy the files from there",
            )

    def _identity(self, role: str, name: str) -> Identity:
        if role not in ROLES:
            raise OperatorError(f"there is no role {role!r}", f"Give one of {', '.join(ROLES)}")
        if not re.match(NAME, name):
            raise OperatorError(
                f"{name!r} is no name of a process", "Use lower-case letters, digits and hyphens"
            )
        return Identity(self.network, role, name)

    def _issue(self, identity: Identity, hosts: tuple[str, ...], days: int, out: Path | None) -> Credentials:
        self._check_issues()
        if not 1 <= days <= DAYS_MAX:
            raise OperatorError(f"a certificate for {days} days", f"Give 1 to {DAYS_MAX} days")
        issuer, signing = self._signer()
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, f"tocsin {identity.network}"),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, identity.role),
                x509.NameAttribute(NameOID.COMMON_NAME, identity.name),
            ]
        )
        names = [x509.UniformResourceIdentifier(identity.uri), *map(_general_name, hosts)]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            _draft(subject, issuer.subject, key.public_key(), days, _now())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
            )
            .sign(signing, hashes.SHA256())
        )
        pair = _private(key) + _pem(certificate)
        if out is None:
            found = credentials_of(self.directory, identity.role, identity.name)
            _write(found.certificate_path, pair, 0o600)
            return found
        found = credentials_of(out, identity.role, identity.name)
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(found.certificate_path, pair, 0o600)
        _write(found.ca_path, _bytes(self.directory / BUNDLE), 0o644)
        copies = self.directory / ISSUED
        copies.mkdir(exist_ok=True, mode=0o700)
        _write(copies / found.certificate_path.name, _pem(certificate), 0o600)
        return found


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLY)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Names and addresses in one spelling, each once; ``OperatorError`` for what cannot be in a certificate."""
    found = tuple(dict.fromkeys(_spelt(_general_name(host)) for host in hosts))
    if len(found) > HOSTS_MAX:
        raise OperatorError(f"a certificate for {len(found)} hosts", f"Name at most {HOSTS_MAX}")
    return found


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not re.fullmatch(r"[A-Za-z0-9_*]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", host):
        raise OperatorError(
            f"{host!r} is no host name or address", "Give names such as broker.example.com, or addresses"
        )
    return x509.DNSName(host.lower())


def _spelt(name: x509.GeneralName) -> str:
    return str(name.value)


def _read(path: Path, believed: Sequence[x509.Certificate]) -> Certificate:
    try:
        certificate = x509.load_pem_x509_certificate(_bytes(path))
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        raise _unusable(path, "it is not a certificate that was issued here") from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    identities = [found for found in map(identity_of, uris) if found is not None]
    if len(identities) != 1:
        raise _unusable(path, "it does not name one process of a network")
    return Certificate(
        path=path,
        identity=identities[0],
        hosts=tuple(_spelt(name) for name in names if isinstance(name, x509.DNSName | x509.IPAddress)),
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
        fingerprint=_fingerprint(certificate),
        issuer=next((_fingerprint(each) for each in believed if _issued(each, certificate)), ""),
    )


def end_of(path: Path) -> datetime.datetime:
    """When the first certificate of a PEM file ends; ``OperatorError`` if there is none."""
    try:
        return x509.load_pem_x509_certificate(_bytes(path)).not_valid_after_utc
    except ValueError:
        raise OperatorError(f"{path} has no certificate in it", "Give a PEM file") from None


def _issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # the library raises several kinds; none of them says that it was
        return False
    return True


def _days(certificate: Certificate) -> int:
    return max(1, round((certificate.ends - certificate.begins).total_seconds() / 86_400))


def _fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex()


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(FILE_MAX_BYTES)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replace a file whole. A key is nobody else's, not even for a moment."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)  # from a crash, perhaps with other permissions
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _unusable(path: Path, reason: str) -> OperatorError:
    return OperatorError(
        f"{path} cannot be used: {reason[:1].lower()}{reason[1:]}",
        "Restore it from a backup; without one, stop the network, remove that directory and start again: "
        "a new authority is made",
    )
