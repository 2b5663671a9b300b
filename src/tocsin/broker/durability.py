"""What a broker needs of the store to keep its promises: the message log, stored sessions, retained messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Final

import msgspec
import structlog

from tocsin.broker.arrivals import Arrivals
from tocsin.broker.attendant import Attendant, Connected
from tocsin.broker.channels import Channels
from tocsin.broker.clientele import Present
from tocsin.broker.groups import Groups
from tocsin.broker.journal import Journal
from tocsin.broker.orphans import Orphans
from tocsin.broker.ownership import Ownership
from tocsin.broker.provisional import CutOff, Provisional, ProvisionalAttendant
from tocsin.broker.replicating import Replicating
from tocsin.broker.retained import Retained, retained_table
from tocsin.broker.retaining import Retaining, Waiting
from tocsin.broker.sessions import HANDED, Abandoned, NotYours, Sessions
from tocsin.broker.standing_by import StandingBy
from tocsin.broker.standing_in import StandingIn
from tocsin.broker.wills import Wills
from tocsin.broker.witnesses import Witnesses
from tocsin.core.budget import Budget
from tocsin.core.ownership import Claim, may_take
from tocsin.core.replication.signals import Policy
from tocsin.core.retain_line import Place
from tocsin.core.session import Accepted
from tocsin.core.session_quota import SessionQuota
from tocsin.core.stored_session import StoredSession, decode_session, kept_s, session_key
from tocsin.core.waiting_wills import Told, Verdict, came_since
from tocsin.errors import FormatNewer, StoreFull, TocsinError
from tocsin.model.publication import Publication
from tocsin.model.subjects import fits, messages_log
from tocsin.ports import Bus, Cell, Delivery, Entry, Log, LogSpec, Store, TableSpec
from tocsin.runtime.pump import wall_us
from tocsin.store.results import ResultsReader
from tocsin.wire.replication import Bequest

LOOK_AGAIN_S: Final = 1.0  # after a failure of the store
LOOK_LATER_S: Final = (
    30.0  # before what only a newer release can read is looked at again: a person has to act
)
LOOK_AT_SESSIONS_S: Final = 5.0  # between two looks at how many are stored
WILL_AGAIN_S: Final = 5.0  # before a will is tried again that the store had no room for
ROOM_MIN_BYTES: Final = 1 << 26  # the least that the message log is opened with


class Durability:
    """The durable side of one broker."""

    def __init__(
        self,
        journal: Journal,
        retained: Retained,
        sessions: Sessions,
        groups: Groups,
        channels: Channels,
        replicating: Replicating,
        bus: Bus,
        *,
        network: str,
        broker: str,
        life: str,
        announce: Callable[[Publication], None],
        will_grace_s: int,
        others: Iterable[str] = (),
        has_users: bool = False,
        budget: Budget,
    ) -> None:
        self.journal = journal
        self.retained = retained
        self.retaining = Retaining(retained, journal, self._spawn)
        self.sessions = sessions
        self.quota = sessions.quota
        self.groups = groups
        self.channels = channels
        self.replicating = replicating
        self._changed = replicating.changed  # one object for all attendants
        self._broker = broker
        self._life = life  # differs at every start of the broker
        self._arrivals = Arrivals(
            bus, sessions, network=network, broker=broker, ended=self.ended, spawn=self._spawn
        )
        self.orphans = Orphans(sessions.table, broker, over=sessions.over)
        channels.holding.saw = self._saw
        self.ownership = Ownership(
            bus,
            network=network,
            broker=broker,
            others=others,
            asks=has_users,
            stored=sessions.owner_of,
        )
        self.ownership.holder = self._holder
        self._witnesses = Witnesses(
            bus, replicating.backup.is_void, network=network, broker=broker, others=others
        )
        self._announce = announce  # sends a QoS 0 message that no connection sends
        self.wills = Wills(self.publish, replicating.will_settled, budget)
        self.standing_in = StandingIn(
            replicating,
            self.wills,
            will_grace_s,
            aloud=announce,
            doubt=self._find_out,
            allows=self._allows,
        )
        replicating.wills_left = self.standing_in.restarted
        self.provisional = Provisional(
            sessions.table, broker=broker, known=replicating.known, tail=lambda: journal.tail
        )
        self._attendances = 0
        # Client → the end of its last connection, being stored.
        self._endings: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    @classmethod
    async def open(
        cls,
        store: Store,
        *,
        network: str,
        broker: str,
        life: str,
        keep_s: float | None = None,
        keep_bytes: int | None = None,
        commits_max: int,
        retained_max: int,
        retained_bytes: int,
        retained_user_bytes: int,
        groups_max: int,
        members_max: int,
        budget: Budget,
        results: ResultsReader | None = None,
        replication: Policy | None = None,
        quota: SessionQuota | None = None,
        will_grace_s: int = 30,
        others: Iterable[str] = (),
        has_users: bool = False,
        session_over: Callable[[str], None] = lambda client: None,
        dispatch: Callable[[Entry, Publication], None],
        judging: Callable[[], bool] = lambda: False,
        announce: Callable[[Publication], None],
        pressure: Callable[[bool], None],
        unwanted: Callable[[int], None],
    ) -> Durability:
        """``others``: the names that other brokers may have; ``has_users``: clients can prove who they are."""
        log = await _open_within(store, messages_log(network, keep_s, keep_bytes))
        journal = Journal(
            log,
            network,
            records_max=commits_max,
            dispatch=dispatch,
            pressure=pressure,
            keep_s=keep_s,
            keep_bytes=keep_bytes,
            judging=judging,
        )
        await journal.open()
        retained = Retained(
            await store.table(retained_table(network)), retained_max, retained_bytes, retained_user_bytes
        )
        table = await store.table(TableSpec(name=f"{network}-sessions"))
        groups = Groups(
            await store.table(TableSpec(name=f"{network}-groups")),
            journal,
            life=f"{broker}.{life}",
            groups_max=groups_max,
            members_max=members_max,
            unwanted=unwanted,
            budget=budget,
        )
        await groups.open()

        channels = await Channels.open(store, table, network=network, broker=broker, reader=results)
        standing_by = StandingBy(channels.holding)
        replicating = Replicating(
            store.bus, standing_by, network=network, broker=broker, policy=replication, others=others
        )

        def over(session: StoredSession) -> None:
            sessions.quota.over(session.client)
            groups.session_over(session)
            channels.holding.over(session)
            replicating.over(session)
            session_over(session.client)

        sessions = Sessions(
            table, store.bus, network=network, broker=broker, over=over, holding=channels.holding, quota=quota
        )
        return cls(
            journal,
            retained,
            sessions,
            groups,
            channels,
            replicating,
            store.bus,
            network=network,
            broker=broker,
            life=life,
            announce=announce,
            will_grace_s=will_grace_s,
            others=others,
            has_users=has_users,
            budget=budget,
        )

    async def run(
        self, let_go: Callable[[str], None], store: Store, expel: Callable[[str], None] | None = None
    ) -> None:
        """Commit, follow, watch and answer, for as long as the broker lives. ``let_go`` ends a client's connection for
        one of the same user elsewhere, ``expel`` because its id is another user's."""
        self.ownership.expel = expel or let_go

        async def hand_over(request: Delivery) -> bytes:
            client, came_us = Sessions.wanted(request)
            if self._arrivals.since(client, came_us):
                return HANDED.seal(b"newer here")
            let_go(client)
            await self.ended(client)
            return HANDED.seal(b"yours")

        async def hear(arrivals: AsyncIterator[Delivery]) -> None:
            async for arrival in arrivals:
                for each in self._arrivals.elsewhere(arrival):
                    theirs = each.claim
                    if self.ownership.objects(theirs):
                        self.ownership.object_to(theirs)  # nobody came who is entitled to that id
                        continue
                    if self._gives_way(theirs):
                        let_go(theirs.client)
                    self._has_come(theirs, back=each.back)
                    self.replicating.moved(theirs.client, theirs.owner)
                    user = self.quota.user_of(theirs.client)
                    if user is not None and may_take(user, theirs.owner):
                        self.quota.over(theirs.client)  # it counts there, or is no more

        subject = self.sessions.hand_over_subject(self._broker)
        async with (
            store.bus.serve(subject, hand_over),
            store.bus.serve(self._witnesses.subject, self._witnesses.answer),
            store.bus.serve(self.ownership.subject(self._broker), self.ownership.answer),
            store.bus.subscribe(self._arrivals.subject) as arrivals,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(hear(arrivals))
            group.create_task(self.ownership.run())
            group.create_task(self.journal.commit_all())
            group.create_task(self.journal.follow())
            group.create_task(self._look_at_sessions())
            group.create_task(self.journal.remember())
            group.create_task(self.retained.watch())
            group.create_task(self.groups.run())
            group.create_task(self.channels.holding.run())
            group.create_task(self.channels.results.follow())
            group.create_task(self.replicating.run())
            group.create_task(self.orphans.run())

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def attend(self, connection: Connected, cause: str) -> Attendant:
        return Attendant(
            connection,
            self.journal,
            self.sessions.table,
            cause,
            self.groups.settle,
            self.channels,
            self._changed,
            self.quota.wrote,
        )

    def attend_provisionally(
        self, connection: Connected, cause: str, accepted: Accepted, error: TocsinError, owner: str
    ) -> Attendant | None:
        """The same of a client whose session could not be taken for this error, which is raised if it counts; None if
        the client has no session that lasts."""
        client, clean, expiry_s = connection.client_id, accepted.clean_start, accepted.session_expiry_s
        if isinstance(error, NotYours) or not self.provisional.cut_off:
            raise error
        record = self.provisional.admit(client, owner=owner, clean=clean, expiry_s=expiry_s)
        if record is None:
            return None
        attendant = ProvisionalAttendant(
            connection,
            self.journal,
            self.sessions.table,
            cause,
            self.groups.settle,
            self.channels,
            self._changed,
            record=record,
            positions=self.provisional.positions(client),
        )
        self.provisional.came(client, attendant)
        return attendant

    def prefix(self) -> str:
        """For the record ids of one connection: never given out twice."""
        self._attendances += 1
        return f"{self._broker}.{self._life}.{self._attendances}"

    async def take(
        self,
        client: str,
        *,
        owner: str,
        clean: bool,
        expiry_s: int,
        wanted: Callable[[], bool] = lambda: True,
    ) -> tuple[StoredSession, int, bool] | None:
        """Make a client's session ours, after whatever an earlier connection of it here still has to store; unless it
        is no longer ``wanted`` (``Abandoned``), or the session is another user's (``NotYours``). The other brokers are
        told after that.
        """
        if not wanted():
            raise Abandoned(client)
        came_us = self._arrivals.came(client)
        claim = Claim(client, owner, self._broker, came_us)
        self._has_come(claim, back=not clean)
        if self.provisional.cut_off:
            raise CutOff(client)
        await self.ended(client)
        await self._arrivals.settled(client)
        await self.provisional.settled(client)
        taken = await self.sessions.take(
            client,
            owner=owner,
            clean=clean,
            expiry_s=expiry_s,
            tail=self.journal.tail,
            came_us=came_us,
            wanted=wanted,
        )
        if wanted():
            stored = taken is not None and bool(owner)
            self._arrivals.tell(msgspec.structs.replace(claim, stored=stored, inside=True), back=not clean)
        if taken is None:
            return None
        session, revision, resumed = taken
        self.replicating.backup.note_taken(session.uid, session.epoch)
        return await self._recall(session), revision, resumed

    async def _recall(self, session: StoredSession) -> StoredSession:
        """Find out which of a client's QoS 2 messages the log has, where nobody lived to say so."""
        found = [
            packet_id
            for packet_id, (since, topic) in session.sought.items()
            if packet_id in session.inbound
            and await self.journal.has(session.inbound[packet_id], topic, since)
        ]
        return msgspec.structs.replace(session, received=(*session.received, *found)) if found else session

    async def entitled(self, client: str, user: str) -> bool:
        """Whether a client id is this user's to have: nobody else has a session under it, or is connected with it.
        Asked before the client is let in, where users are told from each other."""
        claim = Claim(client, user, self._broker, wall_us())
        if self.provisional.cut_off:
            known = self.replicating.known(client)
            self.ownership.came_unasked(claim)
            return known is None or may_take(known.head.owner, user)
        owner, store_knows = await self.ownership.owner_of(client)
        if owner is not None and not may_take(owner, user):
            return False
        if owner:
            return True  # its own: nobody need be asked
        return await self.ownership.claim(claim, store_knows=store_knows)

    def client_came(self, client: str, owner: str) -> None:
        """A client came that wants no session: an old one is forgotten, by the way."""
        claim = Claim(client, owner, self._broker, self._arrivals.came(client), inside=True)
        self._has_come(claim, back=False)
        if (
            self.provisional.cut_off
        ):  # what is said on the bus now would be heard later, when it is no longer true
            with contextlib.suppress(NotYours):
                self.provisional.began_anew(client, owner)
        else:
            self._arrivals.tell(claim, back=False)
            self._arrivals.begins_anew(client, owner)

    def _holder(self, client: str) -> Claim | None:
        """The claim of whoever was let in here under a client id."""
        people = self.replicating.clientele.people
        connection = people.present.get(client)
        if connection is None:
            return None
        attendant = connection.attendant
        owner = people.who(connection).user
        stored = bool(owner and attendant.session) and not attendant.provisional
        came_us = self._arrivals.came_us(client)
        return Claim(client, owner, self._broker, came_us, stored, inside=True)

    def _gives_way(self, theirs: Claim) -> bool:
        """Whether the client that is here, or about to be, is let go for the same user's elsewhere."""
        people = self.replicating.clientele.people
        connection = people.present.get(theirs.client)
        return connection is not None and may_take(people.who(connection).user, theirs.owner)

    def _has_come(self, claim: Claim, *, back: bool) -> None:
        """A client is alive, at this broker or another. What another user left under its id is not its affair."""
        self.wills.came(claim.client, claim.owner, back=back)
        self.standing_in.came(claim.client, claim.broker, claim.owner)

    def client_went(self, client: str) -> None:
        """No connection here has this client any more."""
        self._arrivals.went(client)

    def left(self, connection: Present, expiry_s: int, owner: str) -> None:
        """A client's connection is over: store what it leaves, and tell the backups."""
        if self.provisional.severed or self.provisional.cut_off:
            self.provisional.left(connection, owner, expiry_s)
        will = self.wills.unsettled(connection.client_id)
        if will is not None:
            will = msgspec.structs.replace(will, since=self.journal.tail)
        self.end(connection.client_id, connection.attendant, expiry_s, settled=will is None)
        if expiry_s:
            self.quota.left(connection.client_id, wall_us() + expiry_s * 1_000_000)
        else:
            self.quota.over(connection.client_id)
        self.replicating.went(connection, expiry_s, will)

    def end(self, client: str, attendant: Attendant, expiry_s: int, *, settled: bool = False) -> None:
        """A client's connection is over: store what it leaves. ``settled``: no will of it is left."""
        task = self._spawn(self._end(client, attendant, expiry_s, settled))
        self._endings[client] = task

        def done(task: asyncio.Task[None]) -> None:
            if self._endings.get(client) is task:
                del self._endings[client]

        task.add_done_callback(done)

    async def _end(self, client: str, attendant: Attendant, expiry_s: int, settled: bool) -> None:
        if not await attendant.end(expiry_s, settled=settled):
            self.orphans.left(client, attendant.session, attendant.session_epoch, expiry_s)

    def ending(self, client: str) -> bool:
        """Whether something of an earlier connection of this client is left to store."""
        return client in self._endings

    async def ended(self, client: str) -> None:
        """Return when nothing of an earlier connection of this client is left to store."""
        task = self._endings.get(client)
        if task is not None:
            await asyncio.wait({task})

    def _saw(self, cell: Cell, session: StoredSession) -> None:
        """A scan has found a stored session."""
        self.orphans.saw(cell, session)
        if session.home == self._broker:
            kept = kept_s(session)
            until_us = None if kept is None else wall_us() + kept * 1_000_000
            self.quota.found(session.client, session.owner, len(cell.value), until_us)

    async def _look_at_sessions(self) -> None:
        """See how much is stored, for as long as the broker lives."""
        while True:
            try:
                usage = await self.sessions.table.usage()
                self.quota.saw(usage.keys, usage.size)
            except TocsinError as error:
                self._log.info("how many sessions are stored is not known", problem=str(error))
            await asyncio.sleep(LOOK_AT_SESSIONS_S)

    async def drain(self, deadline_s: float) -> None:
        """Let everything that ended be stored."""
        self._arrivals.forget()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=deadline_s)
        await self.groups.drain(deadline_s)

    # ── wills ───────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, will: Bequest, done: Told) -> None:
        """A will that is due. ``done`` when it was sent, or the log has it, or refuses it for good; or if its client
        may not publish it, by the rules as they are here and now."""
        publication = will.publication

        def told() -> None:
            self.replicating.backup.note_void(will.record_id)
            done()

        if not self._allows(will):
            told()
        elif publication.qos == 0:
            if publication.retain:
                self.retaining.keep_if_room(publication, will.owner)
            self._announce(publication)
            told()
        elif fits(publication.topic):
            place: Place[Waiting] | None = None
            if publication.retain and self.retaining.refusal(publication, will.owner) is None:
                place = self.retaining.expect(publication.topic, publication, will.owner)
            elif publication.retain:  # there is no room: it is published, and not retained
                publication = msgspec.structs.replace(publication, retain=False)

            def stored(error: TocsinError | None, position: int) -> None:
                if isinstance(error, StoreFull):  # late is not what was asked for, lost is worse
                    self._log.error("a will waits until the store has room", problem=str(error))
                    asyncio.get_running_loop().call_later(WILL_AGAIN_S, commit)
                    return
                if place is not None and error is None:
                    self.retaining.keep(publication, position=position, place=place)
                elif place is not None:
                    self.retaining.withdraw(place)
                told()

            # Whoever stands in here may have been first.
            shared, record_id = self.journal.past if will.record_id else None, will.record_id or self.prefix()

            def commit() -> None:
                self.journal.commit(publication, record_id, stored, shared)

            commit()
        else:
            told()

    def _allows(self, will: Bequest) -> bool:
        """Whether the client that left a will may publish it: rights change, and copies come from other brokers."""
        if self.replicating.clientele.allows(will):
            return True
        publication = will.publication
        facts = {"subscriber": publication.client, "user": will.owner, "topic": publication.topic}
        self._log.warning("a will is not published: its client may not publish there", **facts)
        return False

    def _find_out(self, client: str, will: Bequest, verdict: Verdict) -> None:
        self._spawn(self._look_for(client, will, verdict))

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
        cell = await self.sessions.table.get(session_key(client), fresh=True)
        if came_since(will, None if cell is None else decode_session(cell.value)):
            return True
        publication = will.publication
        if not will.since or not publication.qos or not fits(publication.topic):
            return False
        return await self.journal.has(will.record_id, publication.topic, will.since)

    # ── upkeep ──────────────────────────────────────────────────────────────────────────────────────────────

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _open_within(store: Store, spec: LogSpec) -> Log:
    """Open a log with as much room as the settings ask for and the store has: it sets the room aside at once."""
    while True:
        try:
            return await store.log(spec)
        except StoreFull:
            if spec.max_bytes is None or spec.max_bytes < 2 * ROOM_MIN_BYTES:
                raise
            smaller = spec.max_bytes // 2
            structlog.get_logger().warning(
                "the store has not that much room", asked=spec.max_bytes, next=smaller
            )
            spec = msgspec.structs.replace(spec, max_bytes=smaller)
