"""Accounts that their users make themselves: register, change the password, remove the account.

    account = register("mqtts://alerts.example.org", "ann", "correct horse battery")
    with Client("mqtts://alerts.example.org", username=account.name, password="correct horse battery") as client:
        ...

The name of whoever registers begins with ``~``. Passwords are sent over TLS, or to this machine, and never otherwise:
nothing is said to a broker that is elsewhere in clear text, also not to one that another broker names.

The functions block; ``AsyncAccounts`` is for asyncio. ``core.access.registration`` has what is asked and answered.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

import msgspec
import uvloop
from mqtt5 import Packet, PublishPacket

from tocsin.client.address import DEFAULT_SERVERS, Server, read_servers
from tocsin.client.aio import AsyncClient
from tocsin.core.access.accounts import ACCOUNTS_USER
from tocsin.core.access.admission import is_loopback
from tocsin.core.access.registration import REQUEST, TOPICS
from tocsin.errors import AccountRefused, AddressInvalid, DeadlineExceeded, Malformed
from tocsin.model.publication import Publication
from tocsin.model.versions import UNREADABLE
from tocsin.runtime.machines.clock import token_hex

DEADLINE_S: Final = 30.0
HERE: Final = "localhost"

Result = TypeVar("Result")


class Account(msgspec.Struct, frozen=True):
    """The outcome of a request: the whole name, with which to log in, and what has become of the account."""

    name: str
    state: str  # active; waiting, for an operator to approve it; removed


class _Answer(msgspec.Struct):
    """The answer of a broker."""

    v: int = 1
    name: str = ""
    state: str = ""
    error: str | None = None
    code: int = 0


_ANSWER: Final = msgspec.json.Decoder(_Answer)


class AsyncAccounts:
    """Asks brokers about accounts. Raises ``AccountRefused``; ``AddressInvalid`` for a server in clear text."""

    def __init__(
        self,
        servers: str | Sequence[str | Server] = DEFAULT_SERVERS,
        *,
        tls: ssl.SSLContext | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._servers = [msgspec.structs.replace(each, username=None) for each in read_servers(servers)]
        for each in self._servers:
            _check_secret(each.host, secure=each.secure)
        self._tls = tls
        self._deadline_s = deadline_s

    async def register(self, name: str, password: str, *, invitation: str | None = None) -> Account:
        """Make an account; if its state is ``waiting``, it counts once an operator approves it."""
        return await self._ask("register", name, password=password, invitation=invitation)

    async def change_password(self, name: str, password: str, new: str) -> Account:
        """Give an account another password; whoever is connected with the old one is disconnected."""
        return await self._ask("password", name, password=password, new=new)

    async def remove(self, name: str, password: str) -> Account:
        """Remove an account; whoever is connected with it is disconnected."""
        return await self._ask("remove", name, password=password)

    async def _ask(self, verb: str, name: str, **said: str | None) -> Account:
        said = {key: value for key, value in said.items() if value is not None}
        asking = _Asking(
            self._servers,
            username=ACCOUNTS_USER,
            tls=self._tls,
            redial=False,
            watch=False,
            deadline_s=self._deadline_s,
        )
        async with asking:
            answer = await asking.ask(verb, {"v": int(REQUEST.text), "name": name, **said})
        if answer.error is not None:
            raise AccountRefused(name, answer.error, answer.code)
        return Account(answer.name, answer.state)


class _Asking(AsyncClient):
    """One connection about accounts, for one request."""

    _answer: asyncio.Future[_Answer]
    _reply = ""

    async def ask(self, verb: str, said: dict[str, object]) -> _Answer:
        """Publish a request; its answer."""
        at = self._line.at
        _check_secret(at.host, secure=at.tls is not None)  # a broker may have sent us here
        self._answer = asyncio.get_running_loop().create_future()
        self._reply = f"{TOPICS}answer/{token_hex(8)}"
        payload = msgspec.json.encode(said)
        try:
            async with asyncio.timeout(self.deadline_s):
                await self.send(Publication(TOPICS + verb, payload, 1, "", response_topic=self._reply))
                return await self._answer
        except TimeoutError:
            raise DeadlineExceeded(f"the answer to {verb}", self.deadline_s) from None
        finally:
            self._answer.cancel()

    def line_heard(self, packet: Packet) -> None:
        if not isinstance(packet, PublishPacket) or not self._reply or packet.topic != self._reply:
            super().line_heard(packet)
        elif not self._answer.done():
            try:
                answer = _ANSWER.decode(packet.payload)
                REQUEST.check(str(answer.v))
                self._answer.set_result(answer)
            except (*UNREADABLE, msgspec.MsgspecError) as error:
                self._answer.set_exception(Malformed(f"an answer about an account cannot be read: {error}"))


def _check_secret(host: str, *, secure: bool) -> None:
    """A password is said to this machine, or over TLS."""
    if not secure and host != HERE and not is_loopback(host):
        raise AddressInvalid(f"passwords are not sent in clear text to {host}: use mqtts:// or wss://")


# ── for programs without asyncio ────────────────────────────────────────────────────────────────────────────


def register(
    servers: str | Sequence[str | Server],
    name: str,
    password: str,
    *,
    invitation: str | None = None,
    tls: ssl.SSLContext | None = None,
    deadline_s: float = DEADLINE_S,
) -> Account:
    """Make an account, as ``AsyncAccounts.register``."""
    accounts = AsyncAccounts(servers, tls=tls, deadline_s=deadline_s)
    return _run(accounts.register(name, password, invitation=invitation))


def change_password(
    servers: str | Sequence[str | Server],
    name: str,
    password: str,
    new: str,
    *,
    tls: ssl.SSLContext | None = None,
    deadline_s: float = DEADLINE_S,
) -> Account:
    """Change an account's password, as ``AsyncAccounts.change_password``."""
    return _run(AsyncAccounts(servers, tls=tls, deadline_s=deadline_s).change_password(name, password, new))


def remove_account(
    servers: str | Sequence[str | Server],
    name: str,
    password: str,
    *,
    tls: ssl.SSLContext | None = None,
    deadline_s: float = DEADLINE_S,
) -> Account:
    """Remove an account, as ``AsyncAccounts.remove``."""
    return _run(AsyncAccounts(servers, tls=tls, deadline_s=deadline_s).remove(name, password))


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    return uvloop.run(work)
