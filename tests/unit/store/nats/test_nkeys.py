"""Keys in NATS's spelling, against values that the NATS project's own tools made, and files of credentials."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tocsin.config import Nats
from tocsin.errors import OperatorError
from tocsin.store.nats.login import Login, login_of
from tocsin.store.nats.nkeys import SeedInvalid, make_seed, public_key, read_credentials, sign

# The example of NATS's documentation for nkeys.
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def test_a_known_seed_has_its_known_public_key() -> None:
    assert public_key(SEED) == PUBLIC


def test_a_new_seed_signs_what_its_public_key_verifies() -> None:
    seed = make_seed()
    assert seed.startswith("SU") and len(seed) == 58 and seed != make_seed()
    public = public_key(seed)
    assert public.startswith("U") and len(public) == 56
    raw = base64.b32decode(public)[1:33]
    Ed25519PublicKey.from_public_bytes(raw).verify(base64.b64decode(sign(seed, "nonce")), b"nonce")


@pytest.mark.parametrize(
    "bad", ["", "SU", PUBLIC, SEED[:-1], SEED[:-1] + "A", SEED.lower(), "é", "SA" + SEED[2:]]
)
def test_what_is_no_seed_of_a_user_is_refused(bad: str) -> None:
    with pytest.raises(SeedInvalid):
        read_credentials(bad)


def test_a_creds_file_has_a_jwt_and_a_seed(tmp_path: Path) -> None:
    text = (
        "-----BEGIN NATS USER JWT-----\neyJ0.abc.def\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\nNKEY Seed printed below.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    )
    (tmp_path / "broker.creds").write_text(text)
    nats = Nats(urls=("tls://a:1",), credentials=str(tmp_path / "{role}.creds"), tls_name="store")
    login = login_of(nats, "broker")
    assert (login.jwt, login.seed, login.role, login.secure) == ("eyJ0.abc.def", SEED, "broker", True)
    assert login.inbox == "_INBOX.broker"
    with pytest.raises(OperatorError, match=r"coordinator\.creds cannot be used: there is no such file"):
        login_of(nats, "coordinator")
    (tmp_path / "feeder.creds").write_text("nothing")
    with pytest.raises(OperatorError, match="not a seed of NATS"):
        login_of(nats, "feeder")


def test_files_for_tls_that_cannot_be_used_are_said(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(OperatorError, match=r"Correct nats\.ca"):
        Login(secure=True, ca=str(tmp_path / "ca.pem")).context()
