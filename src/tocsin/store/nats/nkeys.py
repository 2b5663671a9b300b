"""NATS nkeys: Ed25519 keys in the server's spelling. A user keeps a *seed*, the server knows the *public key*.

The spelling is base32 of a prefix byte (two for a seed), the 32 bytes of the key, and a CRC-16 of both. Public keys of
users begin with ``U``, their seeds with ``SU``. The server sends a nonce, and the user signs it: nothing that would
open the store ever travels.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from typing import Final

_SEED: Final = 18 << 3  # "S"
_USER: Final = 20 << 3  # "U"
_SEED_OF_USER: Final = bytes((_SEED | _USER >> 5, (_USER & 31) << 3))
_KEY_BYTES: Final = 32
_SECOND: Final = b"tocsin: direct gets"  # changed, every key in the readers' account would be another
_CREDENTIALS: Final = re.compile(
    r"-----BEGIN NATS USER JWT-----\s+(?P<jwt>\S+)\s+-+END NATS USER JWT-+.*"
    r"-----BEGIN USER NKEY SEED-----\s+(?P<seed>\S+)\s+-+END USER NKEY SEED-+",
    re.DOTALL,
)


class SeedInvalid(ValueError):
    """The text is no seed of a user."""


def make_seed() -> str:
    """The seed of a new user."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = Ed25519PrivateKey.generate().private_bytes_raw()
    return _spelt(_SEED_OF_USER + raw)


def second_seed(seed: str) -> str:
    """Another seed that follows from the first; the first does not follow from it. ``SeedInvalid``.

    A server knows a key in one account only, and a process has one file. So its key in the other account
    (``store.servers.roles``) is made of what is in the file.
    """
    return _spelt(_SEED_OF_USER + hmac.digest(_raw(seed), _SECOND, "sha256"))


def public_key(seed: str) -> str:
    """The public key of a seed; ``SeedInvalid``."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(_raw(seed))
    return _spelt(bytes((_USER,)) + key.public_key().public_bytes_raw())


def sign(seed: str, nonce: str) -> bytes:
    """The signature of a server's nonce, in base64."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return base64.b64encode(Ed25519PrivateKey.from_private_bytes(_raw(seed)).sign(nonce.encode()))


def read_credentials(text: str) -> tuple[str, str]:
    """The JWT (empty if there is none) and the seed in a file: a ``.creds`` file, or a seed by itself."""
    found = _CREDENTIALS.search(text)
    jwt, seed = (found["jwt"], found["seed"]) if found is not None else ("", text.strip())
    _raw(seed)
    return jwt, seed


def _raw(seed: str) -> bytes:
    try:
        decoded = base64.b32decode(seed.encode("ascii") + b"=" * (-len(seed) % 8))
    except (ValueError, binascii.Error):
        raise SeedInvalid("it is not a seed of NATS (SU…)") from None
    body, check = decoded[:-2], decoded[-2:]
    if len(body) != 2 + _KEY_BYTES or _crc16(body).to_bytes(2, "little") != check:
        raise SeedInvalid("it is not a seed of NATS, or was not copied whole")
    if body[0] & 0b1111_1000 != _SEED or (body[0] & 7) << 5 | body[1] >> 3 != _USER:
        raise SeedInvalid("it is the seed of something else than a user")
    return body[2:]


def _spelt(body: bytes) -> str:
    return base64.b32encode(body + _crc16(body).to_bytes(2, "little")).decode().rstrip("=")


def _crc16(data: bytes) -> int:
    return binascii.crc_hqx(data, 0)
