"""Answers connections about accounts, and keeps the accounts of the network known: the shell of
``core.access.registration``.

Passwords are hashed where those of log-ins are checked, in the same queue. Lines of the audit log are written in a
thread, one after the other, before the answer that they are about is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import structlog
from argon2.exceptions import Argon2Error
from mqtt5 import PublishPacket

from tocsin.broker.client import ClientConnection
from tocsin.core.access.accounts import PREFIX, is_registered
from tocsin.core.access.admission import Origin, is_loopback, source_of
from tocsin.core.access.registration import (
    ACCOUNTS,
    REQUEST,
    Asked,
    Checked,
    CheckPassword,
    Hashed,
    HashPassword,
    LoggedIn,
    Note,
    Registration,
    Reply,
    UsersChanged,
)
from tocsin.core.channels.pull import ECHO_MAX_BYTES, echo_bytes
from tocsin.core.delivery.grant import Grant, frame_of
from tocsin.core.machine import Effect, Event, Watched
from tocsin.model.publication import Publication
from tocsin.ports import Table
from tocsin.runtime.machines.clock import wall_s
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.security.users import Users, UsersBusy
from tocsin.wire.mqtt.topics import TopicInvalid, check_topic

ASKING_MAX: Final = 64  # connections about accounts at one broker
DIRECT: Final = Grant(0, (), False)
UNKNOWN: Final = "unknown"  # the source of all whose address is not known
ANSWER_TYPE: Final = "tocsin.account"

# Who did what to which account, how it ended, and why if it was refused.
WriteNote = Callable[[str, str, str, str, str], None]


class _Client:
    """A client that waits for an answer, and the topic that it goes to."""

    __slots__ = ("address", "connection", "correlation", "reply")

    def __init__(self, connection: ClientConnection, address: str, packet: PublishPacket) -> None:
        self.connection = connection
        self.address = address
        self.reply = packet.response_topic or _reply_of(packet.payload)
        self.correlation = packet.correlation_data


class Registrar:
    """The accounts of a network, at one broker. ``changed`` is told of users who are gone or have another password."""

    def __init__(
        self,
        machine: Registration,
        users: Users,
        table: Table,
        write_note: WriteNote,
        *,
        changed: Callable[[frozenset[str]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.machine = machine
        self._users = users
        self._table = table
        self._write_note = write_note
        self._changed = changed
        self._shell = Shell(machine, self._carry_out, failed, tables={ACCOUNTS: table})
        self._clients: dict[int, _Client] = {}  # of the requests that are under way
        self._count = 0
        self._notes = asyncio.Lock()  # lines of the audit log, in their order
        self.answered = 0
        self.refused = 0

    async def run(self) -> None:
        """Follow the accounts, for as long as the broker lives."""
        try:
            async for change in self._table.watch(PREFIX):
                self._shell.post(Watched(table=ACCOUNTS, change=change, cause=f"account {change.key}"))
        finally:
            self._shell.close()

    def logged_in(self, user: str) -> None:
        """A user has come in."""
        if is_registered(user):
            self._shell.post(LoggedIn(name=user, cause=f"account {user}"))

    def ask(self, connection: ClientConnection, packet: PublishPacket, origin: Origin) -> None:
        """A connection asks; it is told the answer, if it is still there."""
        self._count += 1
        number, address = self._count, origin.address
        self._clients[number] = _Client(connection, address, packet)
        asked = Asked(
            number=number,
            topic=packet.topic,
            payload=packet.payload,
            source="" if is_loopback(address) else source_of(address) or UNKNOWN,
            wall_s=int(wall_s()),
            cause=f"account request {number}",
        )
        self._shell.post(asked)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case HashPassword():
                self._shell.spawn(self._hash(effect))
            case CheckPassword():
                self._shell.spawn(self._check(effect))
            case Note(number=number):
                self._shell.spawn(self._note(effect, self._clients[number].address))
            case Reply(number=number):
                self._shell.spawn(self._answer(effect, self._clients.pop(number)))
            case UsersChanged(names=names):
                self._users.changed(names)
                self._changed(names)
            case _:
                self._shell.carry_out(effect)

    async def _hash(self, asked: HashPassword) -> None:
        event: Event
        try:
            address = self._clients[asked.number].address
            hashed = await self._users.hash(asked.name, asked.password, address)
            event = Hashed(number=asked.number, hashed=hashed, cause=asked.cause)
        except UsersBusy as busy:
            event = Hashed(number=asked.number, problem=str(busy), cause=asked.cause)
        except Argon2Error as error:  # there is no memory for it
            structlog.get_logger().error("a password cannot be hashed", problem=str(error))
            problem = "this broker cannot hash a password just now; try again in a while"
            event = Hashed(number=asked.number, problem=problem, cause=asked.cause)
        self._shell.post(event)

    async def _check(self, asked: CheckPassword) -> None:
        event: Event
        try:
            address = self._clients[asked.number].address
            good = await self._users.verify(asked.name, asked.password, address)
            event = Checked(number=asked.number, good=good, cause=asked.cause)
        except UsersBusy as busy:
            event = Checked(number=asked.number, problem=str(busy), cause=asked.cause)
        self._shell.post(event)

    async def _note(self, note: Note, address: str) -> None:
        async with self._notes:
            write = partial(self._write_note, address, note.action, note.name, note.outcome, note.problem)
            await asyncio.to_thread(write)

    async def _answer(self, reply: Reply, client: _Client) -> None:
        async with self._notes:  # behind the line about it
            pass
        self.answered += not reply.problem
        self.refused += bool(reply.problem)
        said: dict[str, object] = {"v": int(REQUEST.text)}
        if reply.problem:
            said |= {"error": reply.problem, "code": reply.code}
        else:
            said |= {"name": reply.name, "state": reply.became}
        topic, connection = client.reply, client.connection
        if topic is None or echo_bytes(topic, client.correlation) > ECHO_MAX_BYTES:
            return
        message = Publication(
            topic,
            msgspec.json.encode(said),
            0,
            "",
            payload_format=1,
            content_type="application/json",
            correlation=client.correlation,
            user_properties=(("type", ANSWER_TYPE),),
        )
        frame = frame_of(message, connection.version, DIRECT)
        if len(frame) <= connection.send_max_bytes:
            connection.queue(frame)


def _reply_of(payload: bytes) -> str | None:
    """The topic of the answer that a request names in itself; None if there is none that can be used."""
    try:
        topic = msgspec.json.decode(payload, type=_Reply).reply
        check_topic(topic)
    except (msgspec.MsgspecError, TopicInvalid, UnicodeDecodeError, RecursionError):
        return None
    return topic


class _Reply(msgspec.Struct):
    reply: str
