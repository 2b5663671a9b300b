"""An authority that issues and revokes client certificates of every kind, for tests."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class Issued:
    """A certificate with its key, in one PEM file."""

    def __init__(self, path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.path = path
        self.certificate = certificate
        self.key = key

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


class ClientAuthority(Issued):
    """Signs certificates of clients and of authorities below it. ``path`` holds its own certificate, without the
    key."""

    def __init__(self, directory: Path, name: str, above: ClientAuthority | None = None) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer, signing = (subject, key) if above is None else (above.certificate.subject, above.key)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_now() - datetime.timedelta(hours=1))
            .not_valid_after(_now() + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(signing, hashes.SHA256())
        )
        super().__init__(directory / f"{name}.pem", certificate, key)
        self._directory = directory
        self.path.write_bytes(self.pem)

    def issue(
        self,
        *common_names: str,
        names: Sequence[x509.GeneralName] = (),
        seconds: float = 86_400,
        chain: Iterable[Issued] = (),
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in common_names])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_now() - datetime.timedelta(hours=1))
            .not_valid_after(_now() + datetime.timedelta(seconds=seconds))
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=not common_names)
        certificate = builder.sign(self.key, hashes.SHA256())
        made = Issued(self._directory / f"client-{certificate.serial_number}.pem", certificate, key)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        made.path.write_bytes(secret + made.pem + b"".join(each.pem for each in chain))
        return made

    def revoked(
        self, *certificates: Issued, seconds: float = 86_400, days_old: float = 3, number: int | None = None
    ) -> bytes:
        """The list of those that are revoked, which is good for so long."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(_now() - datetime.timedelta(days=days_old))
            .next_update(_now() + datetime.timedelta(seconds=seconds))
        )
        if number is not None:
            builder = builder.add_extension(x509.CRLNumber(number), critical=False)
        for each in certificates:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(each.certificate.serial_number)
                .revocation_date(_now())
                .build()
            )
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
