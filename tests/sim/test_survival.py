"""Whoever fails, nothing acknowledged is lost, nobody has two owners, and all come home; without any one precaution
that is not so."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec
import pytest

from tests.sim.survival_bugs import MINUTE, SECOND, Planted, find_again
from tocsin.broker.assembly import Broker
from tocsin.broker.connection.connection import Connection
from tocsin.broker.delivery.client_delivery import DurableDelivery
from tocsin.broker.delivery.message_log import MessageLog, Stored
from tocsin.broker.delivery.session_lifecycle import Departures
from tocsin.broker.entrance.clients import Clients
from tocsin.broker.forwarding.exchange import Exchange
from tocsin.broker.links.pool import LinkPool
from tocsin.broker.survival import provisional
from tocsin.broker.survival.moving_out import Removal
from tocsin.broker.survival.replication import Replicating
from tocsin.coordinator.standbys import StandbyDesk
from tocsin.core.cells import CellWriter
from tocsin.core.coordination.leader.balancing import Balance, Emptying
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.participant.signals import ClientsChanged
from tocsin.core.delivery import taking
from tocsin.core.delivery.machine import ClientDelivery
from tocsin.core.delivery.repeats import Repeats
from tocsin.core.delivery.session_cell import SESSIONS, SessionCell
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import Progress
from tocsin.core.forwarding.overlay import StandbyRoutes
from tocsin.core.forwarding.table import Subscription
from tocsin.core.links import dialler
from tocsin.core.machine import Effect, Event, PutKey, Say, Table, TimerFired
from tocsin.core.replication.backup import Backup
from tocsin.core.session.machine import Session
from tocsin.core.session.signals import PeerClosed, TakenOver
from tocsin.core.survival.announcements import Announcements, ArrivalClock, ArrivalTimes, ClientLetIn
from tocsin.core.survival.provisional import Record, settle
from tocsin.model.network import BrokerInfo
from tocsin.model.publication import Publication
from tocsin.sim.faults.compound import Storm
from tocsin.sim.faults.kinds import Crash, CrashTogether, Fault, Partition, Pause, Skew, StoreTrouble
from tocsin.sim.network import STORE
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios import survival
from tocsin.sim.scenarios.survival.promises.looking import PLACE_TAKEN, STANDS_IN
from tocsin.sim.store import StoreWeather
from tocsin.sim.world import World
from tocsin.wire.internal.control import Moves
from tocsin.wire.internal.replication import Applied, Delta, Positions, Update

ACKNOWLEDGED = "what is acknowledged is in the log"
MESSAGES = "subscribers get everything, in order, at QoS 2 once"
ASKED = "a query and a group get everything, at QoS 2 once"
OWNER = "one owner per client and epoch; no position is committed by a fenced owner"
LETS_GO = "a broker lets a client go that another has"
STORED = "an acknowledged subscription stays as it is, whichever broker has the client"
BACKED = "what is acknowledged, every backup has that is not behind"
GIVEN_UP = "nothing comes of a topic that was unsubscribed from, but what the log had before"
ONCE = "behind the client's filter nothing comes twice"
STANDBY_ROUTES = "standby routes carry nothing until somebody covers"
HOME = "in the end everybody is at home, and nobody stands in for anybody"
BOUNDED = "what a broker holds is bounded"
REACHED = "a broker that has moved is found at its new address"
CALM = "what is published when all is calm is heard once"
RECOVERS = "everybody is served again within the bound"
EMPTY = "a broker that is being emptied has no clients in the end"
AGAIN = "what is stored as settled is not delivered again"
TAKES_NOBODY = "a broker that is said to be empty takes no new clients"
BEST = "of the standbys that answer the best takes the place"
LAST = "sessions last"
SETTLED = "everything is settled in the end"
OUSTED = "no client is thrown out for a connection of its own"


def test_some_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("survival", 0, 8) if outcome.broken] == []


def test_some_seeds_with_several_standbys_break_nothing() -> None:
    assert [outcome for outcome in run_many("survival-standbys", 0, 3) if outcome.broken] == []


def test_some_seeds_with_drains_break_nothing() -> None:
    assert [outcome for outcome in run_many("survival-drain", 0, 3) if outcome.broken] == []


# Seeds that broke something, and what they found.
FOUND: dict[int, str] = {
    101: "a backup published the will of a client whose broker had been taken for lost, and had it all the time",
    180: "the promise asked for a will whose only broker ended with the CONNACK on its way",
    191: "SUBACK was sent when the store was back and did not have the subscription yet",
    233: "the promise asked for messages that did not wait for a coordinator, which a query may miss",
    244: "the same of a broker that had just started, and had heard no coordinator yet",
    250: "a client that had lost its connection acknowledged what it read over the next, before CONNACK",
    5115: "a publisher that moved was cleared before all knew of the stream that it had begun at its old broker",
}


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_broke_something_breaks_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    find_again(monkeypatch)
    assert run(find("survival"), seed).broken is None


# ── plans of their own ───────────────────────────────────────────────────────────────────────────────────────

NORTH = ("north-1", "north-2", "north-spare")
# A broker with clients is frozen until another has its place, and wakes up.
ZOMBIE: list[Fault] = [Pause(at_us=4 * SECOND, for_us=14 * SECOND, node="north-1")]
# A broker is gone for long enough to be stood in for, and comes back.
LOST: list[Fault] = [Crash(at_us=6 * SECOND, for_us=14 * SECOND, node="north-1")]
# The same, when standbys have been there for a while.
LOST_LATER: list[Fault] = [Crash(at_us=12 * SECOND, for_us=10 * SECOND, node="north-1")]
# All connections break, again and again.
STORMS: list[Fault] = [
    Storm(at_us=at * SECOND, for_us=0, node=node) for at in range(3, 30, 3) for node in ("north-1", "south-2")
]
# A broker is frozen for long, twice. It reads what was sent to it meanwhile, by clients that are elsewhere.
FROZEN_TWICE: list[Fault] = [
    Pause(at_us=at * MINUTE, for_us=for_s * SECOND, node="north-1") for at, for_s in ((1, 80), (4, 120))
]
# Brokers end again and again, and are back before they are missed.
RESTARTS: list[Fault] = [
    Crash(at_us=at * SECOND, for_us=SECOND, node=node)
    for at in range(4, 28, 4)
    for node in ("north-1", "south-2")
]
# Most writes are lost for a while, and a broker ends that waits for the answers. What its clients have acknowledged is
# in the copies of its backups only.
UNWRITTEN: list[Fault] = [
    StoreTrouble(at_us=4 * SECOND, for_us=4 * SECOND, weather=StoreWeather(lose_ppm=700_000)),
    Crash(at_us=8 * SECOND, for_us=12 * SECOND, node="north-1"),
]
# A client cannot reach its home any more, and goes elsewhere.
AWAY: list[Fault] = [Partition(at_us=5 * SECOND, for_us=25 * SECOND, side=("ben",), others=("north-1",))]
# Two clients hear nothing of their brokers, which then are lost.
DEAF: list[Fault] = [
    Partition(at_us=5 * SECOND, for_us=5 * SECOND // 2, side=("anna", "cleo"), others=("north-1", "south-2")),
    Crash(at_us=7 * SECOND, for_us=14 * SECOND, node="north-1"),
    Crash(at_us=7 * SECOND, for_us=14 * SECOND, node="south-2"),
]
# A broker is lost whose clock was ahead, and its clients go to others.
AHEAD: list[Fault] = [
    Skew(at_us=SECOND // 10, for_us=29 * SECOND, node="south-1", ahead_us=60 * SECOND),
    Crash(at_us=3 * SECOND // 2, for_us=20 * SECOND, node="south-1"),
]
# A broker is cut off with two residents. Their connections break, and it serves them provisionally.
CUT_OFF: list[Fault] = [Partition(at_us=4 * SECOND, for_us=16 * SECOND, side=("north-1", "anna", "ben"))]
# A broker is cut off from the store until it counts as lost, while publishers make streams, and is back soon.
UNHEARD: list[Fault] = [
    Partition(at_us=8 * SECOND // 10, for_us=23 * SECOND // 10, side=("north-1",), others=(STORE,))
]

STORIES: dict[str, list[Fault]] = {
    "all brokers of a cluster end at once": [CrashTogether(at_us=6 * SECOND, for_us=8 * SECOND, nodes=NORTH)],
    "a coordinator fails over while a broker is recovered": [
        Crash(at_us=6 * SECOND, for_us=12 * SECOND, node="north-1"),
        Crash(at_us=8 * SECOND, for_us=3 * SECOND, node="coordinator-1"),
        Crash(at_us=13 * SECOND, for_us=3 * SECOND, node="coordinator-2"),
    ],
    "a zombie wakes up while a standby has its name": ZOMBIE,
    "a cluster is cut off from all others and heals": [
        Partition(at_us=4 * SECOND, for_us=12 * SECOND, side=(*NORTH, "anna", "ben"))
    ],
    "a broker is lost whose clock was ahead": AHEAD,
    "a broker ends whose writes are lost": UNWRITTEN,
    "a broker reads of new streams before a leader tells it of them": UNHEARD,
    "no coordinator answers when streams are made, and a query misses what does not wait": [
        Partition(at_us=SECOND, for_us=12 * SECOND, side=("coordinator-1", "coordinator-2"))
    ],
}


def test_some_seeds_with_moving_machines_break_nothing() -> None:
    assert [outcome for outcome in run_many("survival-moves", 0, 3) if outcome.broken] == []


def test_machines_that_move_in_a_calm_network_break_nothing() -> None:
    assert run(find("survival-moves"), 0, plan=[]).broken is None


@pytest.mark.parametrize("story", STORIES)
def test_a_planned_disaster_breaks_nothing(story: str) -> None:
    for seed in range(2):
        assert run(find("survival"), seed, plan=STORIES[story]).broken is None


class Counts(Invariant):
    """Counts what is said, and breaks nothing."""

    name = "counts what happens"

    def __init__(self, seen: Counter[str]) -> None:
        self._seen = seen

    def attach(self, world: World) -> None:
        for text in (
            STANDS_IN,
            PLACE_TAKEN,
            "told",
            "acknowledged",
            "left",
            "unsubscribed",
            "dies",
            "heard",
            "session lost",
        ):
            world.observers.on_say(text, self._count)

    def _count(self, node: str, say: Say) -> None:
        self._seen[say.text] += 1


def test_a_run_has_all_that_survival_is_made_of() -> None:
    """Else the promises would promise nothing."""
    seen: Counter[str] = Counter()
    scenario = msgspec.structs.replace(
        find("survival"), build=lambda world: [*survival.build(world), Counts(seen)]
    )
    for seed in range(2):
        assert run(scenario, seed, plan=LOST).broken is None
    wanted = (STANDS_IN, PLACE_TAKEN, "acknowledged", "left", "unsubscribed", "dies", "heard")
    assert all(seen[each] for each in wanted), seen
    assert seen["told"] > 200


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────


def acknowledges_early(patch: pytest.MonkeyPatch) -> None:
    """A message is acknowledged before the log has it."""
    commit = MessageLog.commit

    def hasty(
        self: MessageLog, publication: Publication, record_id: str, stored: Stored, behind: int | None = None
    ) -> None:
        stored(None, self.tail + 1)
        commit(self, publication, record_id, lambda error, position: None, behind)

    patch.setattr(MessageLog, "commit", hasty)


def checks_no_epoch(patch: pytest.MonkeyPatch) -> None:
    """A session is written without the revision that was read, so that whoever lost it writes it too."""
    ask = CellWriter._ask

    def unchecked(self: CellWriter, what: Literal["put", "delete", "read"]) -> Effect:
        asked = ask(self, what)
        is_put = isinstance(asked, PutKey) and asked.table == SESSIONS
        return msgspec.structs.replace(asked, revision=None) if is_put else asked

    patch.setattr(CellWriter, "_ask", unchecked)


def commits_before_delivery(patch: pytest.MonkeyPatch) -> None:
    """How far a client is counts what was sent to it, acknowledged or not."""
    current = ClientDelivery._current

    def hasty(self: ClientDelivery, custody: SessionCell) -> StoredSession:
        now = current(self, custody)
        return msgspec.structs.replace(now, progress=Progress(now.progress.next))

    patch.setattr(ClientDelivery, "_current", hasty)


def answers_before_it_stores(patch: pytest.MonkeyPatch) -> None:
    """A backup answers an update at once, and takes it a moment later, with the next one."""
    on_update = Backup._on_update
    late: WeakKeyDictionary[Backup, dict[str, Update]] = WeakKeyDictionary()

    def lazy(self: Backup, update: Update, now_us: int) -> list[Effect]:
        waiting = late.setdefault(self, {})
        before = waiting.pop(update.primary, None)
        if before is not None:
            on_update(self, before, now_us)
        if update.number == 1:
            return on_update(self, update, now_us)
        waiting[update.primary] = update
        return [self._answer(update.primary, Applied(self._broker, update.series, update.number))]

    patch.setattr(Backup, "_on_update", lazy)


def forgets_unsubscriptions(patch: pytest.MonkeyPatch) -> None:
    """A copy takes what is new, and keeps what is no more."""
    on_update = Backup._on_update

    def kept(delta: Delta) -> Delta:
        said = tuple(each for each in delta.subscriptions if each[1] is not None)
        return msgspec.structs.replace(delta, subscriptions=said)

    def forgetful(self: Backup, update: Update, now_us: int) -> list[Effect]:
        deltas = tuple(map(kept, update.deltas))
        return on_update(self, msgspec.structs.replace(update, deltas=deltas), now_us)

    patch.setattr(Backup, "_on_update", forgetful)


def believes_what_it_knew(patch: pytest.MonkeyPatch) -> None:
    """A client that comes back has also what it was subscribed to when it was here last."""
    begin, depart = DurableDelivery.begin, DurableDelivery.depart
    knew: WeakKeyDictionary[MessageLog, dict[str, dict[str, Subscription]]] = WeakKeyDictionary()

    def believe(self: DurableDelivery, session: StoredSession | None, revision: int, **how: Any) -> None:
        if session is not None:
            known = knew.get(self._message_log, {}).get(session.client, {})
            session = msgspec.structs.replace(session, subscriptions={**known, **session.subscriptions})
        begin(self, session, revision, **how)

    def remember(self: DurableDelivery) -> None:
        if self.here:
            here = knew.setdefault(self._message_log, {})
            here[self._connection.client_id] = dict(self.subscriptions)
        depart(self)

    patch.setattr(DurableDelivery, "begin", believe)
    patch.setattr(DurableDelivery, "depart", remember)


def matches_what_it_had(patch: pytest.MonkeyPatch) -> None:
    """What a connection was subscribed to is matched until it ends."""
    patch.setattr(Exchange, "unsubscribe", lambda self, target, topic_filter: None)


def waits_for_no_backup(patch: pytest.MonkeyPatch) -> None:
    """SUBACK does not wait for the backups."""
    patch.setattr(Replicating, "when_synced", lambda self, client, act: act())


def sends_nobody_home(patch: pytest.MonkeyPatch) -> None:
    """Guests stay where they are."""
    patch.setattr(Clients, "send_home", lambda self, client, reference: None)


def carries_before_it_is_asked(patch: pytest.MonkeyPatch) -> None:
    """Routes that led to a backup once go on leading there, whether it covers or not."""
    patch.setattr(StandbyRoutes, "uncover", lambda self, peer: None)


def copies_what_is_only_sent(patch: pytest.MonkeyPatch) -> None:
    """Backups are told that a client is as far as it was sent to, not as it has acknowledged."""

    def positions(delivery: DurableDelivery) -> Positions | None:
        messages, results = delivery._machine.messages, delivery._machine.results
        tracks = (messages.others, results.others, results.critical, messages.critical)
        sent = [0 if each is None else each.delivery.next - 1 for each in tracks]
        return Positions(*sent) if any(sent) else None

    patch.setattr(DurableDelivery, "positions", property(positions))


def confirms_copies_late(patch: pytest.MonkeyPatch) -> None:
    """The position from a copy is stored, but delivery begins from the one that was stored before."""
    furthest, begin = taking.furthest, Connection._begin
    before: dict[str, Progress] = {}

    def noted(session: StoredSession, copied: Any) -> StoredSession:
        found = furthest(session, copied)
        if found.progress != session.progress:
            before[session.uid] = session.progress
        return found

    def begins(
        self: Connection, session: StoredSession | None, revision: int, accepted: Any, claims: Any = ()
    ) -> None:
        if session is not None and session.uid in before:
            session = msgspec.structs.replace(session, progress=before.pop(session.uid))
        begin(self, session, revision, accepted, claims)

    patch.setattr(taking, "furthest", noted)
    patch.setattr(Connection, "_begin", begins)


def believes_copies_at_qos_2(patch: pytest.MonkeyPatch) -> None:
    """A position from a copy counts at QoS 2 as well: it goes past a message of which PUBREC came, stored or not."""
    patch.setattr(taking, "_exactly_once", lambda session: False)


def believes_copies_that_are_behind(patch: pytest.MonkeyPatch) -> None:
    """The position from a copy counts, though the stored one is further."""
    believes_copies_at_qos_2(patch)

    def copied(progress: Progress, eta: int) -> Progress:
        return progress if eta == progress.position else Progress(eta + 1, (), progress.releasing)

    patch.setattr(taking, "_further", copied)


def never_ends_a_connection(patch: pytest.MonkeyPatch) -> None:
    """What a connection leaves to be stored is never done with."""
    ended = Departures._ended

    def endless(
        self: Departures, client: str, delivery: DurableDelivery, expiry_s: int, stored: bool
    ) -> None:
        ended(self, client, delivery, expiry_s, stored)
        for _ in range(20):
            asyncio.get_running_loop().create_task(_for_ever())

    patch.setattr(Departures, "_ended", endless)


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def forgets_at_the_first_new_one(patch: pytest.MonkeyPatch) -> None:
    """The first new message of any track ends the client's memory of all."""
    is_repeat = Repeats.is_repeat

    def forgetful(self: Repeats, packet_id: int, content: Any, qos: int, marked: bool) -> bool:
        repeat = is_repeat(self, packet_id, content, qos, marked)
        if not repeat and not marked:
            self._expected.clear()
        return repeat

    patch.setattr(Repeats, "is_repeat", forgetful)


def goes_on_regardless(patch: pytest.MonkeyPatch) -> None:
    """Whatever it hears, a broker goes on serving a client that another has."""
    handle = Session.handle

    lost = Connection.connection_lost

    def deaf(self: Session, event: Event, now_us: int) -> list[Effect]:
        ends = isinstance(event, PeerClosed | TakenOver | TimerFired)
        return [] if ends and self.client_id == "ben" else handle(self, event, now_us)

    def still_there(self: Connection, error: Exception | None) -> None:
        if self.client_id != "ben":
            lost(self, error)

    patch.setattr(Session, "handle", deaf)
    patch.setattr(Connection, "connection_lost", still_there)


def tells_at_once(patch: pytest.MonkeyPatch) -> None:
    """The others hear at once of a client without a session, also if its CONNECT is read long after it gave up."""
    handle = Announcements.handle

    def hasty(self: Announcements, event: Event, now_us: int) -> list[Effect]:
        if isinstance(event, ClientLetIn):
            event = msgspec.structs.replace(event, new=False)
        return handle(self, event, now_us)

    patch.setattr(Announcements, "handle", hasty)


def heeds_every_word(patch: pytest.MonkeyPatch) -> None:
    """A word that a client is elsewhere counts though it came here since, and the client does not forgive it."""
    patch.setattr(ArrivalTimes, "since", lambda self, client, came_us: False)
    patch.setattr(dialler, "FORGIVEN_MAX", 0)


def waits_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """Messages go on before others know of their stream, though a leader answers."""

    def hasty(self: Participant, event: ClientsChanged, now_us: int) -> list[Effect]:
        self._submission.add(event.command, event.ticket)
        return [*self._tell(), *self._clear(self._clearing.all(event.ticket))]

    table: Table = {**Participant.table, ("*", ClientsChanged): hasty}
    patch.setattr(Participant, "table", table)


def heeds_no_other_clock(patch: pytest.MonkeyPatch) -> None:
    """A client that comes from a broker whose clock is ahead comes before it was there."""
    patch.setattr(ArrivalClock, "heard", lambda self, came_us: None)


def asks_no_standby(patch: pytest.MonkeyPatch) -> None:
    """All scores are unknown, and the first name is as good as any."""
    patch.setattr(StandbyDesk, "want", lambda self, effect: None)


def never_doubts(patch: pytest.MonkeyPatch) -> None:
    """The answers to queries count for what they are, however long no leader has answered."""
    patch.setattr(Participant, "in_doubt", lambda self, now_us: False)


def forgets_provisional_sessions(patch: pytest.MonkeyPatch) -> None:
    """A broker that is back deletes the sessions that it served without the store, though they live."""

    def forgetful(record: Record, stored: StoredSession | None, **how: Any) -> object:
        found = settle(record, stored, **how)
        return found if stored is None or found == "let go" else "forget"

    patch.setattr(provisional, "settle", forgetful)


def forgets_the_absent(patch: pytest.MonkeyPatch) -> None:
    """A broker that is being emptied forgets the sessions of its clients that are away, so that nothing is left."""
    told = Removal.told

    def forgetting(self: Removal, moves: Moves | None) -> None:
        told(self, moves)
        durable = self._listener.durable
        absent = [each for each in durable.replication.client_state._away if self.drains]
        if absent:
            owners = dict.fromkeys(absent, "")
            self._gone = asyncio.ensure_future(durable.session_entry._sessions.discard(owners))  # type: ignore[attr-defined]

    patch.setattr(Removal, "told", forgetting)


def lets_everybody_in(patch: pytest.MonkeyPatch) -> None:
    """A broker that is being emptied takes new clients, and moves nobody."""
    patch.setattr(Removal, "told", lambda self, moves: None)


def believes_old_counts(patch: pytest.MonkeyPatch) -> None:
    """A leader believes what a broker said of its clients before it had heard of its drain."""
    emptying = Balance.emptying

    def hasty(self: Balance, members: Mapping[str, int]) -> tuple[Emptying, ...]:
        return tuple(msgspec.structs.replace(each, refuses=True) for each in emptying(self, members))

    patch.setattr(Balance, "emptying", hasty)


def tells_nobody_where_it_is(patch: pytest.MonkeyPatch) -> None:
    """A broker that has moved listens at its new address, and says nothing."""
    patch.setattr(Broker, "_readdressed", lambda self, info: None)


def dials_where_a_peer_was(patch: pytest.MonkeyPatch) -> None:
    """Links go on being dialled where their peers were first."""
    want = LinkPool.want

    def stubborn(self: LinkPool, peers: Iterable[BrokerInfo], quiet: Collection[str] = ()) -> None:
        want(self, [self.links[each.id].info if each.id in self.links else each for each in peers], quiet)

    patch.setattr(LinkPool, "want", stubborn)


PLANTED: dict[str, Planted] = {
    "a broker that moves tells nobody": Planted(
        tells_nobody_where_it_is, RECOVERS, scenario="survival-moves", also=REACHED
    ),
    "peers keep the old address": Planted(
        dials_where_a_peer_was, CALM, scenario="survival-moves", also=REACHED
    ),
    "acknowledged before it is durable": Planted(acknowledges_early, ACKNOWLEDGED),
    "epoch unchecked": Planted(checks_no_epoch, OWNER, ZOMBIE),
    "position committed before delivery": Planted(
        commits_before_delivery, MESSAGES, [], seeds=6, also=SETTLED, shown_by=4
    ),
    "sync acknowledged before stored": Planted(answers_before_it_stores, BACKED),
    "copies keep what was unsubscribed from": Planted(forgets_unsubscriptions, BACKED),
    "subscriptions resurrected": Planted(
        believes_what_it_knew, STORED, ZOMBIE, also=GIVEN_UP, seeds=20, shown_by=4
    ),
    "matched until the connection ends": Planted(matches_what_it_had, GIVEN_UP),
    "SUBACK does not wait for the backups": Planted(waits_for_no_backup, BACKED),
    "guests are not sent home": Planted(sends_nobody_home, HOME, LOST),
    "standby routes carry early": Planted(carries_before_it_is_asked, STANDBY_ROUTES, LOST),
    "copies say what is only sent": Planted(copies_what_is_only_sent, MESSAGES, DEAF, seeds=6, shown_by=3),
    "copies are confirmed late": Planted(confirms_copies_late, AGAIN, RESTARTS, seeds=6),
    "copies are believed at QoS 2": Planted(
        believes_copies_at_qos_2, SETTLED, UNWRITTEN, seeds=12, shown_by=3
    ),
    "copies that are behind are believed": Planted(
        believes_copies_that_are_behind, ONCE, RESTARTS, seeds=6, shown_by=1, also=AGAIN
    ),
    "endings are never forgotten": Planted(never_ends_a_connection, BOUNDED, STORMS),
    "standbys are not asked": Planted(asks_no_standby, BEST, LOST_LATER, scenario="survival-standbys"),
    "a drain forgets clients that are away": Planted(
        forgets_the_absent, LAST, seeds=6, scenario="survival-drain", also=MESSAGES
    ),
    "a drain moves nobody": Planted(lets_everybody_in, EMPTY, scenario="survival-drain"),
    "a count from before the drain is believed": Planted(
        believes_old_counts, TAKES_NOBODY, [], scenario="survival-drain"
    ),
    "a lost client is served on": Planted(goes_on_regardless, LETS_GO, AWAY),
    "who comes is told of at once": Planted(tells_at_once, OUSTED, FROZEN_TWICE, scenario="survival-long"),
    "messages do not wait for others": Planted(waits_for_nobody, ASKED),
    "clocks of other brokers do not count": Planted(heeds_no_other_clock, ASKED, AHEAD),
    "provisional sessions are forgotten": Planted(forgets_provisional_sessions, LAST, CUT_OFF),
    "answers are never in doubt": Planted(never_doubts, ASKED, UNHEARD),
}

RARE: dict[str, Planted] = {
    "memory for repeats ends too early": Planted(forgets_at_the_first_new_one, ONCE, RESTARTS, seeds=20),
    "every word that a client is elsewhere counts": Planted(heeds_every_word, OUSTED, None, seeds=500),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[bug]
    found = planted.find(monkeypatch)
    assert found is not None, f"{planted.seeds} seeds did not find it"
    assert found.invariant in (planted.invariant, planted.also)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("bug", RARE)
def test_a_bug_that_shows_rarely_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = RARE[bug].find(monkeypatch)
    assert found is not None and found.invariant == RARE[bug].invariant
