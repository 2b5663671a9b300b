"""Wills on asyncio: the ones that wait (``core.survival.wills``), publishing one, finding out if one is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import structlog

from tocsin.broker.delivery.message_log import MessageLog
from tocsin.broker.retained.writer import RetainedWriter, Waiting
from tocsin.config import Budgets
from tocsin.core.budgets.budget import Account, Budget, Kind, bounds_of
from tocsin.core.delivery.stored_session import decode_session, session_key
from tocsin.core.machine import Effect
from tocsin.core.retained.write_order import WriteTurn
from tocsin.core.survival.wills import (
    AliveKnown,
    AskAlive,
    ClientLives,
    InquireWill,
    PublishWill,
    ReleaseRoom,
    ReserveRoom,
    RoomReserved,
    WaitingWills,
    WillDue,
    WillInquired,
    WillLeft,
    WillPublished,
    WillsSettled,
    came_since,
)
from tocsin.errors import FormatNewer, StoreFull, TocsinError
from tocsin.model.publication import Publication
from tocsin.model.subjects import fits
from tocsin.ports import Table
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Failed, Tasks
from tocsin.wire.internal.replication import Bequest

WILL_AGAIN_S: Final = 5.0  # before a will is tried again that the store had no room for
LOOK_AGAIN_S: Final = 1.0  # after a failure of the store
LOOK_LATER_S: Final = 30.0  # before looking again at what only a newer release can read: a person has to act


Told = Callable[[], None]  # called once, when the will is logged, sent or permanently dropped
Publish = Callable[[Bequest, Told], None]
Verdict = Callable[[bool], None]  # is told whether a will is settled


class Wills:
    """The shell of ``core.survival.wills``: the wills that wait at one broker, within its budget.

    ``aloud`` publishes a will to those who listen now; ``alive`` says whether a client of a lost broker lives, as
    copies say; ``inquire`` finds out whether a will is settled; ``settled`` is called with a client once each of its
    wills is logged, sent or permanently dropped.
    """

    def __init__(
        self,
        publish: Publish,
        *,
        failed: Failed,
        aloud: Publish = lambda will, told: told(),
        alive: Callable[[str, str], bool | None] = lambda broker, client: False,
        inquire: Callable[[str, Bequest, Verdict], None] = lambda client, will, verdict: verdict(False),
        settled: Callable[[str], None] = lambda client: None,
        budget: Budget | None = None,
    ) -> None:
        self._publish = publish
        self._aloud = aloud
        self._alive = alive
        self._inquire = inquire
        self._settled = settled
        self._budget = budget or Budget(bounds_of(Budgets()))
        self._rooms: dict[
            int, Account
        ] = {}  # each will has one of its own, as the connection that it outlives had
        self._machine = WaitingWills()
        self._shell = Shell(self._machine, self._carry_out, failed)
        self._post = self._shell.post

    def __len__(self) -> int:
        """How many wait."""
        return len(self._machine)

    def unsettled(self, client: str) -> Bequest | None:
        """The will of a client that waits, or else the newest that is on its way."""
        return self._machine.unsettled(client)

    def delay(
        self,
        client: str,
        will: Bequest,
        delay_s: int,
        *,
        moving: bool = False,
        of: str = "",
        aloud: bool = False,
    ) -> None:
        """Publish a will after a while, unless its client comes back or lives; see ``WillLeft``."""
        left = WillLeft(
            client=client, will=will, delay_s=delay_s, moving=moving, of=of, aloud=aloud, cause=client
        )
        self._post(left)

    def give_out(self, client: str, will: Bequest, publish: Publish | None = None) -> None:
        """Publish a will now; ``publish``: in another way than the others."""
        self._post(WillDue(client=client, will=will, publish=publish, cause=client))

    def came(self, client: str, owner: str = "", *, back: bool) -> None:
        """A client of this user has come, here or elsewhere; ``back``: for its session. A will that another user's
        client left under the same id is not its affair."""
        self._post(ClientLives(client=client, owner=owner, back=back, cause=client))

    def close(self) -> None:
        """Nothing that waits here is published any more: the broker is over, and does not hear who comes."""
        self._shell.close()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ReserveRoom(number=number, user=user, size=size):
                self._post(RoomReserved(number=number, fits=self._reserve(number, user, size)))
            case ReleaseRoom(number=number):
                if (room := self._rooms.pop(number, None)) is not None:
                    room.close()
            case AskAlive(number=number, broker=broker, client=client):
                self._post(AliveKnown(number=number, alive=self._alive(broker, client)))
            case InquireWill(number=number, client=client, will=will):
                self._inquire(
                    client, will, lambda settled: self._post(WillInquired(number=number, settled=settled))
                )
            case PublishWill(number=number, will=will, aloud=aloud, publish=own):
                publish = self._aloud if aloud else own or self._publish
                publish(will, lambda: self._post(WillPublished(number=number)))
            case WillsSettled(client=client):
                self._settled(client)
            case _:
                self._shell.carry_out(effect)

    def _reserve(self, number: int, user: str, size: int) -> bool:
        # The will is here already. What it took at its connection may have been within the slack of the bound.
        account = self._budget.account(user)
        if account.charge(Kind.SESSIONS, size) is not None:
            account.close()
            return False
        self._rooms[number] = account
        return True


class Rules(Protocol):
    """The rights of the will's owner: they change, and copies of wills come from other brokers."""

    def allows(self, will: Bequest) -> bool: ...


class WillPublisher:
    """Publishes wills that are due. ``announce`` sends a QoS 0 message that no connection sends, ``void`` notes the id
    of a will that is settled, ``prefix`` makes record ids for wills that have none."""

    def __init__(
        self,
        message_log: MessageLog,
        retained_writer: RetainedWriter,
        rules: Rules,
        *,
        announce: Callable[[Publication], None],
        void: Callable[[str], None],
        prefix: Callable[[], str],
    ) -> None:
        self._message_log = message_log
        self._retained_writer = retained_writer
        self._rules = rules
        self._announce = announce
        self._void = void
        self._prefix = prefix
        self._log = structlog.get_logger()

    def publish(self, will: Bequest, done: Told) -> None:
        """A will that is due. ``done`` when it was sent, or the log has it, or refuses it for good; or if its client
        may not publish it, by the rules as they are here and now."""
        publication = will.publication

        def told() -> None:
            self._void(will.record_id)
            done()

        if not self.allows(will):
            told()
        elif publication.qos == 0:
            if publication.retain:
                self._retained_writer.keep_if_room(publication, will.owner)
            self._announce(publication)
            told()
        elif fits(publication.topic):
            self._commit(will, told)
        else:
            told()

    def say_aloud(self, will: Bequest, done: Told) -> None:
        """Publish a will that is due to those who listen now, and into no log."""
        if self.allows(will):
            self._announce(will.publication)
        done()

    def allows(self, will: Bequest) -> bool:
        """Whether the client that left a will may publish it."""
        if self._rules.allows(will):
            return True
        publication = will.publication
        facts = {"subscriber": publication.client, "user": will.owner, "topic": publication.topic}
        self._log.warning("a will is not published: its client may not publish there", **facts)
        return False

    def _commit(self, will: Bequest, told: Told) -> None:
        """Have the log take a will, for as long as that takes."""
        publication, writer = will.publication, self._retained_writer
        place: WriteTurn[Waiting] | None = None
        if publication.retain and writer.refusal(publication, will.owner) is None:
            place = writer.expect(publication.topic, publication, will.owner)
        elif publication.retain:  # there is no room: it is published, and not retained
            publication = msgspec.structs.replace(publication, retain=False)
        # Another broker that stands in may have been first.
        shared = self._message_log.past if will.record_id else None
        record_id = will.record_id or self._prefix()

        def commit() -> None:
            self._message_log.commit(publication, record_id, stored, shared)

        def stored(error: TocsinError | None, position: int) -> None:
            if isinstance(error, StoreFull):  # late is not what was asked for, lost is worse
                self._log.error("a will waits until the store has room", problem=str(error))
                asyncio.get_running_loop().call_later(WILL_AGAIN_S, commit)
                return
            if place is not None and error is None:
                writer.keep(publication, position=position, place=place)
            elif place is not None:
                writer.withdraw(place)
            told()

        commit()


class Witness(Protocol):
    """The other brokers, as they are asked about wills."""

    async def know_settled(self, *names: str) -> bool:
        """Whether anybody knows that a will is settled or seen to, by any of its names."""
        ...


class WillInquiries:
    """Finds out whether a will that was found in a copy is settled: from the store, and from the other brokers."""

    def __init__(self, sessions: Table, message_log: MessageLog, witnesses: Witness, tasks: Tasks) -> None:
        self._sessions = sessions
        self._message_log = message_log
        self._witnesses = witnesses
        self._tasks = tasks
        self._log = structlog.get_logger()

    def ask(self, client: str, will: Bequest, verdict: Verdict) -> None:
        """Call ``verdict`` when it is known whether a client's will is settled."""
        self._tasks.spawn(self._look_for(client, will, verdict))

    async def _look_for(self, client: str, will: Bequest, verdict: Verdict) -> None:
        """See in the store whether a client has come somewhere since it left this will, and ask the other brokers
        whether the will is settled. It can wait for that, as what it would be written to is in the store, too."""
        settled = False
        while True:
            try:
                settled = await self._is_settled(client, will)
                break
            except FormatNewer as error:
                # A broker of a newer release serves, or served, the client: whether it lives is not known here, and a
                # will that waits is better than one of a client that lives.
                self._log.error("a will waits: its client's session is unreadable here", problem=str(error))
                await asyncio.sleep(LOOK_LATER_S)
            except TocsinError as error:
                if not error.retryable:
                    break
                await asyncio.sleep(LOOK_AGAIN_S)
        verdict(settled or await self._witnesses.know_settled(*will.names))

    async def _is_settled(self, client: str, will: Bequest) -> bool:
        """Whether the store knows that a will is settled: its client has come since, or the log has it."""
        cell = await self._sessions.get(session_key(client), fresh=True)
        if came_since(will, None if cell is None else decode_session(cell.value)):
            return True
        publication = will.publication
        if not will.since or not publication.qos or not fits(publication.topic):
            return False
        return await self._message_log.has(will.record_id, publication.topic, will.since)
