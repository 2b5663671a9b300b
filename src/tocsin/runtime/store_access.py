"""Who gets into the embedded servers: the keys of each role, the servers' certificates, and how processes find both.

    nats/keys/broker.nk       the seed with which brokers log in (mode 0600); one for each role
    nats/keys/user-ann.nk     the seed of a user of SQL, where one was added on this machine
    nats/keys/user-ben.pub    the public key of one whose seed is elsewhere

Keys are made once. To replace one, stop the network, delete its file, and start again. ``store.roles`` says what each
role may do; the certificates are the network's own (``runtime.authority``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tocsin.config import Nats, Settings
from tocsin.errors import DirectoryUnusable, OperatorError
from tocsin.runtime.credentials import BUNDLE, certificates_directory, credentials_of
from tocsin.runtime.directory import make_private, write_private
from tocsin.store.login import ROLE
from tocsin.store.nkeys import SeedInvalid, make_seed, public_key, read_credentials
from tocsin.store.roles import ROLES, permissions, user_permissions
from tocsin.store.server import Security, ServerUser

STORE_NAME: Final = "tocsin-store"  # in the certificate of every embedded server, wherever it listens
USER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # one token of a subject
OPERATOR: Final = "operator"


def keys_directory(state: str | Path) -> Path:
    return Path(state).absolute() / "nats" / "keys"


def embedded(nats: Nats, state: str | Path) -> Nats:
    """How processes on this machine log in to the embedded servers of a state directory."""
    return msgspec.structs.replace(
        nats,
        token="",
        credentials=nats.credentials or str(keys_directory(state) / f"{ROLE}.nk"),
        ca=nats.ca or str(certificates_directory(state) / BUNDLE),
        tls_name=nats.tls_name or STORE_NAME,
        tls_handshake="first",
    )


def security(settings: Settings) -> Security:
    """What the embedded servers are told; makes the keys that are missing."""
    certificates = certificates_directory(settings.state)
    names = [f"store-{number}" for number in range(1, settings.nats.servers + 1)]
    return Security(
        certificates=tuple(credentials_of(certificates, "store", name).certificate_path for name in names),
        ca=certificates / BUNDLE,
        users=(*role_users(settings), *sql_users(settings)),
    )


def role_users(settings: Settings) -> tuple[ServerUser, ...]:
    """The roles, with their keys; makes those that are missing."""
    return tuple(
        ServerUser(role, _role_key(settings.state, role), permissions(role, settings.network))
        for role in ROLES
    )


def sql_users(settings: Settings) -> tuple[ServerUser, ...]:
    """The users of SQL that have a key here."""
    return tuple(
        ServerUser(f"user {name}", key, user_permissions(name, settings.network))
        for name, key in sorted(_users(settings.state))
    )


def add_user(state: str | Path, name: str, public: str = "") -> Path:
    """Add a user of SQL: with a new seed, or with the public key of a seed elsewhere. The file; ``OperatorError``."""
    if USER_NAME.fullmatch(name) is None or name == OPERATOR:
        raise OperatorError(
            f"{name!r} cannot be the name of a user of SQL",
            "Use up to 64 letters, digits, hyphens and underscores",
        )
    if public and re.fullmatch(r"U[A-Z2-7]{55}", public) is None:
        raise OperatorError(f"{public!r} is not the public key of a user", "Give one as NATS has it: U…")
    if name in dict(_users(state)):
        raise OperatorError(f"there is a user {name} already", "Remove it first, or choose another name")
    path = keys_directory(state) / (f"user-{name}.pub" if public else f"user-{name}.nk")
    _write(path, public or make_seed())
    return path


def remove_user(state: str | Path, name: str) -> None:
    """Let the servers forget a user when they start next; ``OperatorError`` if there is none."""
    found = [keys_directory(state) / f"user-{name}.{kind}" for kind in ("nk", "pub")]
    if not any(path.exists() for path in found):
        raise OperatorError(f"there is no user {name}", "See `tocsin store users`")
    for path in found:
        path.unlink(missing_ok=True)


def _users(state: str | Path) -> Iterator[tuple[str, str]]:
    for path in sorted(keys_directory(state).glob("user-*.*")):
        name = path.stem.removeprefix("user-")
        if path.suffix in (".nk", ".pub") and USER_NAME.fullmatch(name):
            yield name, _public(path)


def _role_key(state: str | Path, role: str) -> str:
    path = keys_directory(state) / f"{role}.nk"
    if not path.exists():
        _write(path, make_seed())
    return _public(path)


def _public(path: Path) -> str:
    try:
        text = path.read_text("ascii").strip()
        return text if path.suffix == ".pub" else public_key(read_credentials(text)[1])
    except (SeedInvalid, UnicodeDecodeError) as error:
        raise OperatorError(
            f"the key {path} cannot be used: {error}", "Delete it: a new one is made"
        ) from None
    except OSError as error:
        raise DirectoryUnusable(str(path.parent), error.strerror or str(error)) from None


def _write(path: Path, text: str) -> None:
    try:
        make_private(path.parent)
        write_private(path, text.encode() + b"\n")
    except OSError as error:
        raise DirectoryUnusable(str(path.parent), error.strerror or str(error)) from None
