"""TLS contexts: good files, bad files, and files that change."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.certificates import Authority
from tocsin.config import Tls
from tocsin.errors import OperatorError
from tocsin.runtime.security.tls import Certificates, client_context, server_context

DEADLINE_S = 10


def _common_name(certificate: dict[str, Any] | None) -> str | None:
    names = [
        value for part in (certificate or {}).get("subject", ()) for key, value in part if key == "commonName"
    ]
    return names[0] if names else None


@pytest.fixture
def authority(debian_program: Callable[[str, str], str], tmp_path: Path) -> Authority:
    return Authority(debian_program("openssl", "openssl"), tmp_path)


@pytest.fixture
def files(authority: Authority) -> Tls:
    made = authority.sign("localhost")
    return Tls(certificate=str(made.certificate), key=str(made.key), client_ca=str(authority.certificate))


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


async def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str | None, dict[str, object]]:
    """One handshake: what the server knows of the client, and the client of the server."""
    heard: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set_result(_common_name(writer.get_extra_info("peercert")))
        writer.transport.abort()

    running = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server)
    port = running.sockets[0].getsockname()[1]
    try:
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
            shown = writer.get_extra_info("peercert")
            try:
                await reader.read()  # with TLS 1.3 a refusal comes only now
                if not heard.done():
                    raise ConnectionError("the server ended the handshake")
                return heard.result(), shown
            finally:
                writer.transport.abort()
    finally:
        running.close()


async def test_a_client_that_believes_the_authority_comes_in(authority: Authority, files: Tls) -> None:
    name, shown = await shake(Certificates(files).context, trusting(authority))
    assert name is None
    assert ("commonName", "localhost") in [pair for part in shown["subject"] for pair in part]  # type: ignore[attr-defined]


@pytest.mark.parametrize("asked", ["optional", "required"])
async def test_the_common_name_of_a_client_certificate_is_known(
    authority: Authority, files: Tls, asked: str
) -> None:
    client = trusting(authority)
    made = authority.sign("press-1")
    client.load_cert_chain(made.certificate, made.key)
    settings = replace(files, client_certificates=asked)
    assert (await shake(Certificates(settings).context, client))[0] == "press-1"


async def test_a_certificate_that_is_required_is_missed(authority: Authority, files: Tls) -> None:
    settings = replace(files, client_certificates="required")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await shake(Certificates(settings).context, trusting(authority))
    settings = replace(files, client_certificates="optional")
    assert (await shake(Certificates(settings).context, trusting(authority)))[0] is None


async def test_a_certificate_of_another_authority_is_not_believed(
    authority: Authority, files: Tls, debian_program: Callable[[str, str], str], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(debian_program("openssl", "openssl"), tmp_path / "other").sign("press-1")
    client = trusting(authority)
    client.load_cert_chain(stranger.certificate, stranger.key)
    settings = replace(files, client_certificates="optional")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await shake(Certificates(settings).context, client)


async def test_old_versions_of_tls_are_not_spoken(files: Tls) -> None:
    assert server_context(files).minimum_version == ssl.TLSVersion.TLSv1_2


async def test_a_renewed_certificate_and_authority_count_for_new_connections(
    authority: Authority, files: Tls, debian_program: Callable[[str, str], str], tmp_path: Path
) -> None:
    settings = replace(files, client_certificates="required")
    certificates = Certificates(settings)
    assert not certificates.reload()
    former = authority.sign("press-1")
    (tmp_path / "new").mkdir()
    renewed = Authority(debian_program("openssl", "openssl"), tmp_path / "new")
    made, client_made = renewed.sign("renewed"), renewed.sign("press-2")
    for new, old in (
        (made.certificate, files.certificate),
        (made.key, files.key),
        (renewed.certificate, files.client_ca),
    ):
        shutil.copy(new, old)
    assert certificates.reload() and not certificates.reload()
    client = trusting(renewed)
    client.load_cert_chain(client_made.certificate, client_made.key)
    name, shown = await shake(certificates.context, client)
    assert name == "press-2"
    assert "renewed" in str(shown)
    client = trusting(renewed)
    client.load_cert_chain(former.certificate, former.key)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await shake(certificates.context, client)


async def test_a_bad_renewal_leaves_the_certificate_as_it_was(authority: Authority, files: Tls) -> None:
    certificates = Certificates(files)
    shutil.copy(__file__, files.certificate)
    with pytest.raises(OperatorError):
        certificates.reload()
    assert not certificates.reload(), "said once"
    assert (await shake(certificates.context, trusting(authority)))[0] is None


# ── bad files ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("setting", ["certificate", "key", "client_ca"])
def test_a_missing_file_is_named_with_its_setting(files: Tls, setting: str) -> None:
    with pytest.raises(OperatorError) as caught:
        server_context(replace(files, **{setting: "/no/such.pem"}))
    assert "/no/such.pem" in caught.value.problem and f"tls.{setting}" in caught.value.problem
    assert "no such file" in caught.value.problem


@pytest.mark.parametrize("setting", ["certificate", "key", "client_ca"])
def test_a_file_that_is_no_pem_is_refused(files: Tls, setting: str) -> None:
    Path(getattr(files, setting)).write_text("hello")
    with pytest.raises(OperatorError) as caught:
        server_context(files)
    assert f"tls.{setting}" in caught.value.problem and "PEM" in caught.value.remedy


def test_a_key_of_another_certificate_is_refused(files: Tls, authority: Authority) -> None:
    other = authority.sign("other")
    with pytest.raises(OperatorError, match="is not that of the certificate"):
        server_context(replace(files, **{"key": str(other.key)}))


def test_a_key_with_a_passphrase_is_refused_without_asking(
    files: Tls, tmp_path: Path, debian_program: Callable[[str, str], str]
) -> None:
    locked = tmp_path / "locked.key"
    openssl = debian_program("openssl", "openssl")
    command = [openssl, "pkey", "-in", files.key, "-aes256", "-passout", "pass:x", "-out", str(locked)]
    subprocess.run(command, check=True, timeout=60)
    with pytest.raises(OperatorError, match="has a passphrase"):
        server_context(replace(files, **{"key": str(locked)}))


# ── the calling side ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_client_shows_its_certificate_and_checks_the_servers(
    authority: Authority, files: Tls
) -> None:
    made = authority.sign("press-1")
    server = server_context(replace(files, client_certificates="required"))
    shown = partial(client_context, certificate=str(made.certificate), key=str(made.key))
    known, _ = await shake(server, shown(authorities=str(authority.certificate)))
    assert known == "press-1"
    with pytest.raises(ssl.SSLCertVerificationError):
        await shake(server, shown())
    known, _ = await shake(server, shown(insecure=True))
    assert known == "press-1"


def test_files_that_a_client_cannot_use_are_named(authority: Authority, tmp_path: Path) -> None:
    made = authority.sign("press-1")
    (tmp_path / "empty.pem").touch()
    with pytest.raises(OperatorError, match=r"none\.pem \(--cafile\) cannot be read: no such file"):
        client_context(authorities=str(tmp_path / "none.pem"))
    with pytest.raises(OperatorError, match=r"\(--cafile\) has no certificate in it"):
        client_context(authorities=str(tmp_path / "empty.pem"))
    with pytest.raises(OperatorError, match="are not a certificate and its key"):
        client_context(certificate=str(made.certificate), key=str(authority.key))
    with pytest.raises(OperatorError, match="--key is of no use without --cert"):
        client_context(key=str(made.key))
