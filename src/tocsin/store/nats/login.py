"""A process's log-in at the store: its role, its key, and the authorities that it trusts.

``nats.credentials`` names a file: an nkey seed, or a ``.creds`` file of JWT and seed. ``{role}`` in it stands for the
role of the process that reads it, so that one settings file serves all of them, and each machine holds only the keys of
its own processes.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import msgspec

from tocsin.config import Nats
from tocsin.errors import OperatorError
from tocsin.store.nats.nkeys import SeedInvalid, read_credentials, second_seed

FILE_MAX_BYTES: Final = 64 << 10
READERS: Final = (
    "broker",
    "coordinator",
    "pipeline",
    "feeder",
)  # operators and users of SQL read as they are
ROLE: Final = "{role}"  # what a path may hold in place of the role


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials for a server, and those that the server has to show."""

    role: str = ""  # names the inbox: the server lets each role hear its own only
    token: str = ""
    seed: str = ""
    jwt: str = ""
    second: bool = False  # the seed is not the file's, but made of it (``reading``)
    credentials: str = ""  # the file that seed and JWT are from; who replaces it is followed (``renewed``)
    secure: bool = False  # TLS, or no connection
    first: bool = False  # TLS begins before the server says a word, so that nobody can talk us out of it
    ca: str = ""
    certificate: str = ""
    key: str = ""
    tls_name: str = ""

    @property
    def inbox(self) -> str:
        return f"_INBOX.{self.role}" if self.role else "_INBOX"

    def files(self) -> tuple[str, ...]:
        """The files that TLS is made from; who replaces them is followed (``load``)."""
        return tuple(each for each in (self.ca, self.certificate, self.key) if each)

    def renewed(self) -> Login:
        """The same, with what is in the file of credentials now; ``OperatorError`` if that cannot be used."""
        if not self.credentials:
            return self
        jwt, seed = _credentials(self.credentials)
        return msgspec.structs.replace(self, jwt=jwt, seed=second_seed(seed) if self.second else seed)

    def reading(self) -> Login | None:
        """The log-in to the account of direct gets (``store.servers.roles``); None for those who have none there."""
        if not self.seed or self.jwt or self.role not in READERS:
            return None
        return msgspec.structs.replace(self, seed=second_seed(self.seed), second=True)

    def context(self) -> ssl.SSLContext | None:
        """TLS as these files have it; ``OperatorError`` if they cannot be used. None: no TLS is asked for."""
        if not (self.secure or self.first or self.ca or self.certificate):
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not self.ca:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        self.load(context)
        return context

    def load(self, context: ssl.SSLContext) -> None:
        """Read the files into a context; later handshakes go by them. ``OperatorError``."""
        try:
            if self.ca:
                context.load_verify_locations(self.ca)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None, password=_no_passphrase)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
            raise OperatorError(
                f"the files for TLS to the store ({', '.join(self.files())}) cannot be used: {reason}",
                "Correct nats.ca, nats.certificate and nats.key",
            ) from None


def login_of(nats: Nats, role: str) -> Login:
    """The log-in of a role, as settings have it; ``OperatorError`` if its files cannot be used."""
    credentials = nats.credentials.replace(ROLE, role)
    jwt, seed = _credentials(credentials) if credentials else ("", "")
    return Login(
        role=role,
        token=nats.token,
        seed=seed,
        jwt=jwt,
        credentials=credentials,
        secure=_wants_tls(nats),
        first=nats.tls_handshake == "first",
        ca=nats.ca,
        certificate=nats.certificate.replace(ROLE, role),
        key=nats.key.replace(ROLE, role),
        tls_name=nats.tls_name,
    )


def _wants_tls(nats: Nats) -> bool:
    """Whether anything in the settings asks for TLS: then nothing is sent without it, at any of the addresses."""
    named = nats.ca or nats.certificate or nats.tls_handshake == "first"
    return bool(named) or any(url.startswith("tls://") for url in nats.addresses())


def _credentials(path: str) -> tuple[str, str]:
    try:
        with Path(path).open("rb") as file:
            return read_credentials(file.read(FILE_MAX_BYTES).decode("ascii"))
    except FileNotFoundError:
        problem = "there is no such file"
    except OSError as error:
        problem = error.strerror or str(error)
    except SeedInvalid as error:
        problem = str(error)
    except UnicodeDecodeError:
        problem = "it is not ASCII"
    raise OperatorError(
        f"the credentials for the store in {path} cannot be used: {problem}",
        "Copy the file of this process's role from the machine where `tocsin up` made it (STATE/nats/keys), or set "
        "nats.credentials",
    )


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")
