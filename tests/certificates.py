"""Certificates for tests, made with the openssl program: an authority, and what it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path

DEADLINE_S = 60


class Certificate:
    """Two PEM files."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.certificate = certificate
        self.key = key


class Authority(Certificate):
    """Signs certificates; ``certificate`` is what those who believe it need."""

    def __init__(self, openssl: str, directory: Path, name: str = "authority") -> None:
        super().__init__(directory / f"{name}.pem", directory / f"{name}.key")
        self._openssl = openssl
        self._directory = directory
        self._request(name, self.key, "-x509", "-days", "2", "-out", str(self.certificate))

    def sign(self, common_name: str, file_name: str = "") -> Certificate:
        """A certificate for this name, good for 127.0.0.1 and localhost."""
        file_name = file_name or common_name
        request = self._directory / f"{file_name}.csr"
        extensions = self._directory / f"{file_name}.ext"
        made = Certificate(self._directory / f"{file_name}.pem", self._directory / f"{file_name}.key")
        self._request(common_name, made.key, "-out", str(request))
        extensions.write_text("subjectAltName = IP:127.0.0.1, DNS:localhost\n")
        self._run(
            "x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self.key),
            "-CAcreateserial", "-days", "2", "-extfile", str(extensions), "-out", str(made.certificate),
        )  # fmt: skip
        return made

    def _request(self, common_name: str, key: Path, *arguments: str) -> None:
        self._run(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", f"/CN={common_name}", "-keyout", str(key), *arguments,
        )  # fmt: skip

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._openssl, *arguments], check=True, capture_output=True, timeout=DEADLINE_S)
