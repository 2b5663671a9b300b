"""Access to the embedded servers: the keys of each role, the servers' certificates, and how processes find both.

    nats/keys/broker.nk       the seed with which brokers of this machine log in (mode 0600); one for each role
    nats/keys/broker@far.nk   another one for the same role, for a process elsewhere; it can be taken back by itself
    nats/keys/broker@far.pub  the same, if its seed never was here: its two public keys (``tocsin store key public``)
    nats/keys/user-ann.nk     the seed of a user of SQL, where one was added on this machine
    nats/keys/user-ben.pub    the public key of one whose seed is elsewhere

Keys are made once, and replaced by ``tocsin store key``. `tocsin up` tells the servers of changes within seconds: a
client whose key is gone is disconnected. Processes read their key again when they log in again.
``store.servers.roles`` says what each role may do, and why it has a second key, which is made of the first; the
certificates are the network's own (``runtime.security.authority``).

Servers of before there were two accounts have their streams in an account that cannot export anything. That of one
server is renamed (``adopt``), those of a cluster are copied (``runtime.network.moving``). Where that cannot be done,
servers go on with one account.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tocsin.config import Nats, Settings
from tocsin.errors import DirectoryUnusable, OperatorError
from tocsin.runtime.network.directory import make_private, write_private
from tocsin.runtime.security.credentials import BUNDLE, certificates_directory, credentials_of
from tocsin.store.nats.login import READERS, ROLE
from tocsin.store.nats.nkeys import SeedInvalid, make_seed, public_key, read_credentials, second_seed
from tocsin.store.servers.embedded import DATA, Access, Security, ServerUser
from tocsin.store.servers.roles import (
    READS,
    ROLES,
    STREAMS,
    Role,
    direct_gets,
    permissions,
    reading,
    user_permissions,
)

STORE_NAME: Final = "tocsin-store"  # in the certificate of every embedded server, wherever it listens
USER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # one token of a subject
OPERATOR: Final = "operator"
_GLOBAL: Final = "$G"  # the default account, as NATS calls it


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
    """The accounts of the embedded servers; makes missing keys."""
    certificates = certificates_directory(settings.state)
    names = [f"store-{number}" for number in range(1, settings.nats.servers + 1)]
    return Security(
        certificates=tuple(credentials_of(certificates, "store", name).certificate_path for name in names),
        ca=certificates / BUNDLE,
        access=access(settings),
    )


def access(settings: Settings, *, one_account: bool | None = None) -> Access:
    """All keys that the servers admit. ``one_account``: as servers have it whose streams are in their global account;
    as the embedded ones have it, unless said.
    """
    if one_account is None:
        one_account = is_global(settings.state)
    roles = role_users(settings, one_account=one_account)
    return Access((*roles, *sql_users(settings)), () if one_account else direct_gets(settings.network))


def is_global(state: str | Path) -> bool:
    """Whether the embedded servers have streams in their global account."""
    return any(any(path.iterdir()) for path in _jetstreams(state, f"{_GLOBAL}/streams"))


def adopt(state: str | Path) -> bool:
    """Move the streams of a server that runs by itself, and is stopped, to the account where they belong now; whether
    there were any."""
    moved = False
    for path in _jetstreams(state, _GLOBAL):
        if (path.parent / "$SYS" / "_js_").exists() or (path.parent / STREAMS).exists():
            continue  # of a cluster, whose log has the account's name
        try:
            path.rename(path.parent / STREAMS)
        except OSError as error:
            raise DirectoryUnusable(str(path.parent), error.strerror or str(error)) from None
        moved = True
    return moved


def _jetstreams(state: str | Path, pattern: str) -> list[Path]:
    """The matching paths in the stream directories of all embedded servers."""
    return sorted((Path(state).absolute() / "nats").glob(f"store-*/{DATA}/jetstream/{pattern}"))


def key_files(state: str | Path) -> tuple[Path, ...]:
    """The files that name the keys of the servers' clients."""
    return tuple(sorted(keys_directory(state).glob("*.*")))


def role_users(settings: Settings, *, one_account: bool = False) -> Iterator[ServerUser]:
    """The roles, with their keys, each with the second one behind the first; makes those that are missing."""
    keys = [(role, "", _role_keys(settings.state, role)) for role in ROLES]
    for role, name, (first, second) in (*keys, *named_keys(settings.state)):
        who = f"{role} {name}".rstrip()
        direct = role in READERS and (one_account or not second)
        yield ServerUser(who, first, permissions(role, settings.network, direct=direct))
        if role in READERS and not direct:
            yield ServerUser(who, second, reading(role, settings.network), READS)


def named_keys(state: str | Path) -> Iterator[tuple[Role, str, tuple[str, str]]]:
    """Role, name and public keys of each key for a process elsewhere; the second is empty if it is not known."""
    for path in sorted(keys_directory(state).glob("*@*.*")):
        role, _, name = path.stem.partition("@")
        for known in ROLES:
            if path.suffix in (".nk", ".pub") and role == known and USER_NAME.fullmatch(name):
                yield (
                    known,
                    name,
                    _public(path, f"Take it back with `tocsin store key remove {known} {name}`"),
                )


def public_keys(path: Path) -> tuple[str, str]:
    """By which servers know the owner of a seed: in the streams' account, and in that of direct gets."""
    return _public(path, "Name a file with a seed, as `tocsin store key add` or `nk -gen user` makes it")


def add_key(state: str | Path, role: str, name: str, public: str = "") -> Path:
    """Another key for a role: a new seed, or the public key of a seed elsewhere. The file; ``OperatorError``."""
    _check_role(role)
    if USER_NAME.fullmatch(name) is None:
        raise OperatorError(
            f"{name!r} cannot be the name of a key", "Use up to 64 letters, digits, hyphens and underscores"
        )
    first, _, second = public.partition(",")
    for each in (first, second):
        _check_public(each)
    if public and role in READERS and not second:
        raise OperatorError(
            "a process has two public keys, and one was given",
            "Run `tocsin store key public FILE` where its seed is, and give both as it prints them: U…,U…",
        )
    if any((known, taken) == (role, name) for known, taken, _ in named_keys(state)):
        raise OperatorError(
            f"there is a key of {role} {name} already", "Remove it first, or choose another name"
        )
    path = keys_directory(state) / f"{role}@{name}.{'pub' if public else 'nk'}"
    _write(path, public or make_seed())
    return path


def remove_key(state: str | Path, role: str, name: str) -> None:
    """Take back a key of a process elsewhere; ``OperatorError`` if there is none."""
    _check_role(role)
    _remove(state, f"{role}@{name}", f"there is no key of {role} {name}", "See `tocsin store key list`")


def rotate_key(state: str | Path, role: str) -> Path:
    """Replace the key of a role on this machine. The file; ``OperatorError``."""
    _check_role(role)
    path = keys_directory(state) / f"{role}.nk"
    _write(path, make_seed())
    return path


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise OperatorError(f"there is no role {role!r}", f"It is one of {', '.join(ROLES)}")


def _check_public(public: str) -> None:
    if public and re.fullmatch(r"U[A-Z2-7]{55}", public) is None:
        raise OperatorError(f"{public!r} is not the public key of a user", "Give one as NATS has it: U…")


def sql_users(settings: Settings) -> tuple[ServerUser, ...]:
    """The users of SQL that have a key here."""
    return tuple(
        ServerUser(f"user {name}", key, user_permissions(name, settings.network))
        for name, (key, _) in sorted(_users(settings.state))
    )


def add_user(state: str | Path, name: str, public: str = "") -> Path:
    """Add a user of SQL: with a new seed, or with the public key of a seed elsewhere. The file; ``OperatorError``."""
    if USER_NAME.fullmatch(name) is None or name == OPERATOR:
        raise OperatorError(
            f"{name!r} cannot be the name of a user of SQL",
            "Use up to 64 letters, digits, hyphens and underscores",
        )
    _check_public(public)
    if name in dict(_users(state)):
        raise OperatorError(f"there is a user {name} already", "Remove it first, or choose another name")
    path = keys_directory(state) / (f"user-{name}.pub" if public else f"user-{name}.nk")
    _write(path, public or make_seed())
    return path


def remove_user(state: str | Path, name: str) -> None:
    """Let the servers forget a user; ``OperatorError`` if there is none."""
    _remove(state, f"user-{name}", f"there is no user {name}", "See `tocsin store user list`")


def _remove(state: str | Path, stem: str, problem: str, remedy: str) -> None:
    found = [keys_directory(state) / f"{stem}.{kind}" for kind in ("nk", "pub")]
    if not any(path.exists() for path in found):
        raise OperatorError(problem, remedy)
    for path in found:
        path.unlink(missing_ok=True)


def _users(state: str | Path) -> Iterator[tuple[str, tuple[str, str]]]:
    for path in sorted(keys_directory(state).glob("user-*.*")):
        name = path.stem.removeprefix("user-")
        if path.suffix in (".nk", ".pub") and USER_NAME.fullmatch(name):
            yield name, _public(path, f"Take it back with `tocsin store user remove {name}`")


def _role_keys(state: str | Path, role: str) -> tuple[str, str]:
    path = keys_directory(state) / f"{role}.nk"
    if not path.exists():
        _write(path, make_seed())
    return _public(path, "Delete it: a new one is made")


def _public(path: Path, remedy: str) -> tuple[str, str]:
    """The public keys of what is in a file; ``OperatorError`` with the remedy if it is no key."""
    try:
        text = path.read_text("ascii").strip()
        if path.suffix == ".pub":
            first, _, second = text.partition(",")
            return first, second
        _, seed = read_credentials(text)
        return public_key(seed), public_key(second_seed(seed))
    except (SeedInvalid, UnicodeDecodeError) as error:
        raise OperatorError(f"the key {path} cannot be used: {error}", remedy) from None
    except OSError as error:
        raise DirectoryUnusable(str(path.parent), error.strerror or str(error)) from None


def _write(path: Path, text: str) -> None:
    try:
        make_private(path.parent)
        write_private(path, text.encode() + b"\n")
    except OSError as error:
        raise DirectoryUnusable(str(path.parent), error.strerror or str(error)) from None
