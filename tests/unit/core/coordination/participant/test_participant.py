"""A broker's machine: it joins, says what it has until it is heard, follows its notices, and waits for nobody long."""

from __future__ import annotations

import pytest

from tests.unit.core.coordination.histories import HUB, NORTH, SOUTH
from tests.unit.core.coordination.one_broker import BEAT_US, CHANGE, Broker, of, sent
from tocsin.core.coordination.participant.heartbeat import ANSWERS_US, BEATS
from tocsin.core.coordination.participant.participant import BEHIND_US, SUSPECT_LEAST_US
from tocsin.core.coordination.participant.signals import (
    AllDispatched,
    AwaitAll,
    AwaitDispatch,
    ChangesKnown,
    ChangesRouted,
    ChangesSettled,
    DestinationsChanged,
    Dispatched,
    InterestsChanged,
    Loaded,
    MessageRead,
    QueriesChanged,
    QuerySetKnown,
    Readdressed,
    RoleChanged,
    RoutesChanged,
    StreamJoined,
    StreamLeft,
    StreamRefused,
)
from tocsin.core.coordination.participant.submission import CLEAR_US
from tocsin.core.machine import (
    Effect,
    FollowLog,
    IllegalEvent,
    ReadLog,
    Send,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
)
from tocsin.errors import StoreUnavailable
from tocsin.model.network import BrokerInfo, Entrance, Role, Route, Scheme, Scope
from tocsin.model.stream import Value
from tocsin.model.versions import speaks
from tocsin.ports import Page
from tocsin.wire.internal import notices
from tocsin.wire.internal.commands import ClientBack, Interests, Joined, Streams
from tocsin.wire.internal.control import Beat, KnownUpTo, Moves, Pulse, Refresh, Seen, Submit, Unknown

# ── joining ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_participant_joins_at_the_logs_end_and_follows_from_there() -> None:
    broker = Broker()
    assert broker.handle(InterestsChanged(added=("a/#",))) == []
    effects = broker.start(last=10)
    (follow,) = of(FollowLog, effects)
    assert (follow.log, follow.subject, follow.start) == ("net-commands", "net.n.north", 11)
    (submit,) = sent(Submit, effects)
    assert submit == Submit(
        "north", broker.machine.incarnation, 1, (Joined(NORTH, speaks()), Interests(("a/#",)))
    )
    assert broker.machine.incarnation >> 20 == 11, "a later life has a higher number"
    assert broker.machine.state == "joining"


@pytest.mark.parametrize("chance", [0, (1 << 20) - 2, (1 << 20) - 1, 1 << 53])
def test_whatever_chance_gives_it_it_joins(chance: int) -> None:
    broker = Broker()
    (read,) = of(ReadLog, broker.handle(Started(incarnation=chance)))
    effects = broker.handle(Stored(request=read.request, value=Page((), 1, 0)))
    assert len(sent(Submit, effects)) == 1 and len(sent(Beat, broker.fire("beat"))) == 1


def test_a_participant_retries_until_the_log_tells_its_end() -> None:
    broker = Broker()
    (read,) = of(ReadLog, broker.handle(Started(incarnation=5)))
    failed = StoreFailed(request=read.request, error=StoreUnavailable("read", "no server"))
    assert [each.name for each in of(SetTimer, broker.handle(failed))] == ["again"]
    (again,) = of(ReadLog, broker.fire("again"))
    assert again.request != read.request
    assert broker.handle(Stored(request=read.request, value=Page((), 1, 1))) == [], "an old answer"


def test_it_is_a_member_once_it_was_told_everything() -> None:
    broker = Broker()
    broker.start()
    route = Route(Scope.ORIGIN, "south", "a")
    (changed,) = of(
        RoutesChanged, broker.notice(notices.Routes((route,), (), (SOUTH,)), applied=1, fresh=True)
    )
    assert (changed.added, changed.peers) == ((route,), (SOUTH,))
    assert broker.machine.state == "member" and set(broker.machine.routes) == {route}


def test_a_broker_counted_as_lost_rejoins_and_declares_everything_again() -> None:
    broker = Broker().led()
    old = broker.machine.incarnation
    broker.handle(InterestsChanged(added=("a",)))
    broker.say(CHANGE, 1)
    (read,) = of(ReadLog, broker.hear(Unknown(1, old)))
    assert broker.hear(Unknown(1, old)) == [], "it is on its way"
    effects = broker.handle(Stored(request=read.request, value=Page((), 1, 99)))
    (submit,) = sent(Submit, effects)
    assert submit.incarnation == broker.machine.incarnation > old
    assert submit.commands == (
        Joined(NORTH, speaks()),
        Interests(("a",)),
        ClientBack("anna", 60, 3),
        Streams("anna", 60, (("a", {}),), 0, 3),
        CHANGE,
    )
    assert of(ChangesKnown, effects) == [ChangesKnown(ticket=1)], "nobody has to wait for what was before"
    assert broker.hear(Unknown(1, old)) == [], "that life is over"


# ── the leader ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_deposed_leader_is_not_believed() -> None:
    broker = Broker().led()
    incarnation = broker.machine.incarnation
    broker.hear(Pulse(3, incarnation, 1))
    assert broker.hear(Unknown(2, incarnation)) == []
    assert broker.machine.epoch == 3


def test_a_beat_says_what_was_applied_and_how_full_the_broker_is() -> None:
    broker = Broker().joined()
    broker.handle(Loaded(load=250))
    (beat,) = sent(Beat, broker.fire("beat"))
    said = (beat.broker, beat.incarnation, beat.seen, beat.load, beat.interval_ms)
    assert said == ("north", broker.machine.incarnation, 1, 250, BEAT_US // 1_000)


# ── notices ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_query_is_answered() -> None:
    broker = Broker().joined()
    broker.handle(QueriesChanged(added=(("q", "kind = 'lamp'"),)))
    metadata: dict[str, Value] = {"kind": "lamp"}
    (known,) = of(QuerySetKnown, broker.notice(notices.QuerySet("q", (("a", metadata),)), applied=2))
    assert known.streams == {"a": metadata} == broker.machine.streams("q")


def test_a_broker_confirms_a_notice_after_its_shell_has_it() -> None:
    broker = Broker().joined()
    route = Route(Scope.ORIGIN, "hub", "a")
    changed, seen = broker.notice(notices.Routes((route,), (), (HUB,)), ask=True)
    assert isinstance(changed, RoutesChanged)
    assert isinstance(seen, Send) and seen.message == Seen("north", broker.machine.incarnation, 2)


def test_a_gap_is_asked_about_until_everything_is_told() -> None:
    broker = Broker().joined()
    refresh = Refresh("north", broker.machine.incarnation)
    assert sent(Refresh, broker.notice(number=5)) == [refresh]
    assert sent(Refresh, broker.notice(number=6)) == [], "once is enough"
    assert sent(Refresh, broker.fire("beat")) == [refresh], "unless it was lost"
    broker.notice(number=7, fresh=True)
    assert sent(Refresh, broker.fire("beat")) == []


def test_a_participant_requests_notices_that_the_leader_has_and_it_lacks() -> None:
    broker = Broker().led()
    pulse = Pulse(1, broker.machine.incarnation, 4)
    assert sent(Refresh, broker.hear(pulse)) == []
    broker.now_us += BEHIND_US
    assert len(sent(Refresh, broker.hear(pulse))) == 1


def test_notices_of_another_life_are_not_for_us() -> None:
    broker = Broker().joined()
    assert broker.notice(number=9, incarnation=1) == []


def test_the_end_of_a_stream_waits_for_its_last_messages() -> None:
    broker = Broker().joined()
    broker.handle(QueriesChanged(added=(("q", "kind = 'lamp'"),)))
    broker.notice(notices.QuerySet("q", (("a", {"kind": "lamp"}),)), applied=2)
    effects = broker.notice(notices.Left("q", "a", {}, 40), ask=True)
    assert of(AwaitDispatch, effects) == [AwaitDispatch(position=40)]
    assert of(StreamLeft, effects) == [] and sent(Seen, effects) == []
    told = broker.handle(Dispatched(position=40))
    assert len(of(StreamLeft, told)) == 1 and len(sent(Seen, told)) == 1


def test_the_end_of_a_stream_does_not_wait_for_ever() -> None:
    broker = Broker().joined()
    broker.handle(QueriesChanged(added=(("q", "kind = 'lamp'"),)))
    broker.notice(notices.QuerySet("q", (("a", {"kind": "lamp"}),)), applied=2)
    broker.notice(notices.Left("q", "a", {}, 40))
    assert len(of(StreamLeft, broker.fire("hold"))) == 1


# ── answers in doubt ────────────────────────────────────────────────────────────────────────────────────────

LAMP: dict[str, Value] = {"kind": "lamp"}


def asking() -> Broker:
    """A member whose clients ask for the messages and for the set of a query, and whose beat was answered."""
    broker = Broker().led()
    asked = (("q", "kind = 'lamp'"), ("~q", "kind = 'lamp'"))
    broker.handle(QueriesChanged(added=asked))
    broker.notice(notices.QuerySet("q", ()), notices.QuerySet("~q", ()), applied=2)
    answer(broker)
    return broker


def answer(broker: Broker) -> list[Effect]:
    (beat,) = sent(Beat, broker.fire("beat"))
    return broker.hear(Pulse(1, broker.machine.incarnation, broker.number, heard=beat.number))


def read(broker: Broker, topic: str, metadata: dict[str, Value]) -> list[tuple[str, str]]:
    effects = broker.handle(MessageRead(topic=topic, metadata=metadata))
    assert len(of(StreamJoined, effects)) == len(effects)
    return [(each.query, each.topic) for each in of(StreamJoined, effects)]


def test_a_broker_in_doubt_learns_of_streams_from_their_messages() -> None:
    broker = asking()
    broker.now_us += SUSPECT_LEAST_US
    assert not broker.machine.in_doubt(broker.now_us) and read(broker, "a", LAMP) == []
    broker.now_us += 1
    assert broker.machine.in_doubt(broker.now_us)
    assert read(broker, "a", LAMP) == [("q", "a"), ("~q", "a")], "joined comes before the message"
    assert read(broker, "a", LAMP) == [] and read(broker, "b", {"kind": "door"}) == []


def test_a_broker_that_learned_from_messages_asks_the_next_leader() -> None:
    broker = asking()
    assert sent(Refresh, answer(broker)) == [], "there is nothing to ask"
    broker.now_us += SUSPECT_LEAST_US + 1
    read(broker, "a", LAMP)
    read(broker, "b", LAMP)
    for _ in range(2):
        assert len(sent(Refresh, answer(broker))) == 1, "until it is told"
    sets = (notices.QuerySet(query, (("a", LAMP),)) for query in ("q", "~q"))
    effects = broker.notice(*sets, fresh=True)
    assert [(each.query, each.topic) for each in of(StreamLeft, effects)] == [("q", "b"), ("~q", "b")]
    assert of(StreamJoined, effects) == [] and sent(Refresh, answer(broker)) == []


def test_a_notice_of_what_was_learned_tells_nothing_new() -> None:
    broker = asking()
    broker.now_us += SUSPECT_LEAST_US + 1
    read(broker, "a", LAMP)
    joined = broker.notice(notices.Joined("q", "a", LAMP), notices.Joined("~q", "a", LAMP))
    assert of(StreamJoined, joined) == []
    assert len(of(StreamLeft, broker.notice(notices.Left("q", "a", LAMP, 0)))) == 1


def test_a_stream_is_judged_again_when_a_notice_changes_the_answers() -> None:
    broker = asking()
    broker.now_us += SUSPECT_LEAST_US + 1
    read(broker, "a", LAMP)
    broker.notice(notices.Left("q", "a", LAMP, 0))
    assert read(broker, "a", LAMP) == [("q", "a")]


def test_a_rejoining_broker_learns_from_messages_until_it_is_told_everything() -> None:
    broker = asking()
    (log_end,) = of(ReadLog, broker.hear(Unknown(1, broker.machine.incarnation)))
    assert read(broker, "a", LAMP) == [("q", "a"), ("~q", "a")]
    broker.handle(Stored(request=log_end.request, value=Page((), 1, 99)))
    broker.number = 0
    assert read(broker, "b", LAMP) == [("q", "b"), ("~q", "b")]
    answer(broker)
    assert broker.machine.in_doubt(broker.now_us), "an answer may overtake the notice"
    sets = (notices.QuerySet(query, (("a", LAMP), ("b", LAMP))) for query in ("q", "~q"))
    broker.notice(*sets, applied=1, fresh=True)
    assert not broker.machine.in_doubt(broker.now_us) and read(broker, "c", LAMP) == []


def test_streams_that_left_while_it_was_away_are_learned_from_unread_messages() -> None:
    broker = asking()
    broker.notice(*(notices.Joined(query, topic, LAMP) for query in ("q", "~q") for topic in "ab"))
    effects = broker.notice(notices.QuerySet("q", ()), notices.QuerySet("~q", ()), fresh=True)
    assert len(of(StreamLeft, effects)) == 4
    assert of(AwaitAll, effects) == [AwaitAll(number=1)]
    assert read(broker, "a", LAMP) == [("q", "a"), ("~q", "a")], "it was published before the stream left"
    effects = broker.handle(MessageRead(topic="a", metadata={"kind": "door"}))
    assert [(each.query, each.topic) for each in of(StreamLeft, effects)] == [("q", "a"), ("~q", "a")]
    assert read(broker, "a", LAMP) == [("q", "a"), ("~q", "a")]
    assert sent(Refresh, answer(broker)) == [], "it has not read all yet"
    broker.handle(AllDispatched(number=1))
    assert read(broker, "b", LAMP) == [], "it would have been told"
    assert broker.machine.in_doubt(broker.now_us), "of what it learned"
    left = of(StreamLeft, broker.handle(MessageRead(topic="a", metadata={"kind": "door"})))
    assert [(each.query, each.topic) for each in left] == [("q", "a"), ("~q", "a")]
    assert len(sent(Refresh, answer(broker))) == 1, "until it is told everything"
    sets = (notices.QuerySet(query, (("c", LAMP),)) for query in ("q", "~q"))
    assert of(AwaitAll, broker.notice(*sets, fresh=True)) == []
    assert not broker.machine.in_doubt(broker.now_us)


def test_a_broker_lags_until_it_has_read_to_the_last_departure() -> None:
    broker = asking()
    for number, topic in enumerate("ab", 1):
        broker.notice(notices.Joined("q", topic, LAMP))
        effects = broker.notice(notices.QuerySet("q", ()), fresh=True)
        assert of(AwaitAll, effects) == [AwaitAll(number=number)]
    broker.handle(AllDispatched(number=1))
    assert broker.machine.in_doubt(broker.now_us)
    broker.handle(AllDispatched(number=2))
    assert not broker.machine.in_doubt(broker.now_us)


def test_everything_told_anew_without_departures_leaves_no_doubt() -> None:
    broker = asking()
    assert of(AwaitAll, broker.notice(notices.QuerySet("q", (("a", LAMP),)), fresh=True)) == []
    assert not broker.machine.in_doubt(broker.now_us)


def test_a_departure_that_did_not_wait_leaves_doubt_until_all_is_read() -> None:
    broker = asking()
    broker.notice(notices.Joined("q", "a", LAMP))
    assert of(StreamLeft, broker.notice(notices.Left("q", "a", LAMP, 30))) == []
    effects = broker.fire("hold")
    assert len(of(StreamLeft, effects)) == 1 and of(AwaitDispatch, effects) == [AwaitDispatch(position=30)]
    assert read(broker, "a", LAMP) == [("q", "a"), ("~q", "a")]
    broker.handle(Dispatched(position=29))
    assert sent(Refresh, answer(broker)) == []
    broker.handle(Dispatched(position=30))
    assert len(sent(Refresh, answer(broker))) == 1


@pytest.mark.parametrize(("newer", "learned"), [(1, [("q", "a"), ("~q", "a")]), (-1, [])])
def test_a_replaced_process_learns_from_messages_before_its_next_beat(
    newer: int, learned: list[tuple[str, str]]
) -> None:
    broker = asking()
    assert broker.notice(incarnation=broker.machine.incarnation + newer, number=1, fresh=True) == []
    assert read(broker, "a", LAMP) == learned


def test_a_query_without_an_answer_is_not_in_doubt() -> None:
    broker = Broker().led()
    broker.handle(QueriesChanged(added=(("q", "kind = 'lamp'"),)))
    answer(broker)
    broker.now_us += SUSPECT_LEAST_US + 1
    assert not broker.machine.in_doubt(broker.now_us) and read(broker, "a", LAMP) == []


# ── clear to go ─────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_wait_until_a_notice_or_the_leader_clears_them() -> None:
    broker = Broker().led()
    assert of(ChangesKnown, broker.say(CHANGE, 1)) == []
    assert of(ChangesKnown, broker.notice(applied=2, clear=2)) == [ChangesKnown(ticket=1)]
    broker.say(CHANGE, 2)
    assert of(ChangesKnown, broker.notice(applied=3)) == []
    assert of(ChangesKnown, broker.hear(KnownUpTo(1, broker.machine.incarnation, 3))) == [
        ChangesKnown(ticket=2)
    ]


def test_the_way_is_clear_when_what_follows_was_applied_here_too() -> None:
    broker = Broker().led()
    broker.handle(QueriesChanged(added=(("q", "kind = 'lamp'"),)))
    broker.notice(notices.QuerySet("q", (("b", {}),)), applied=2)
    broker.say(CHANGE, 1)
    joined = notices.Joined("q", "a", {"kind": "lamp"})
    effects = broker.notice(joined, applied=3, clear=3)
    assert [type(each) for each in effects if isinstance(each, StreamJoined | ChangesKnown)] == [
        StreamJoined,
        ChangesKnown,
    ]
    broker.say(CHANGE, 2)
    early = broker.hear(KnownUpTo(1, broker.machine.incarnation, 4))
    assert of(ChangesKnown, early) == [], "the leader's word has overtaken the notice"
    held = broker.notice(notices.Left("q", "b", {}, 40), applied=4)
    assert of(ChangesKnown, held) == [], "it waits for the message log"
    told = broker.handle(Dispatched(position=40))
    assert [type(each) for each in told if isinstance(each, StreamLeft | ChangesKnown)] == [
        StreamLeft,
        ChangesKnown,
    ]


def test_routes_are_here_when_the_notice_of_a_change_was_applied() -> None:
    broker = Broker().led()
    broker.say(CHANGE, 1)
    broker.say(CHANGE, 2)
    late = broker.hear(KnownUpTo(1, broker.machine.incarnation, 3))
    assert of(ChangesRouted, late) == []
    assert of(ChangesRouted, broker.notice(applied=2)) == [ChangesRouted(ticket=1)]
    assert of(ChangesRouted, broker.notice(applied=3)) == [ChangesRouted(ticket=2)]
    assert of(ChangesRouted, broker.notice(applied=3)) == []


def test_a_broker_that_joins_anew_has_no_routes_until_heard_again() -> None:
    broker = Broker().led()
    broker.say(CHANGE, 1)
    broker.notice(applied=2)
    (read,) = of(ReadLog, broker.hear(Unknown(1, broker.machine.incarnation)))
    effects = broker.handle(Stored(request=read.request, value=Page((), 1, 99)))
    (submit,) = sent(Submit, effects)
    assert of(ChangesRouted, effects) == [ChangesRouted(ticket=0, anew=True)]
    assert of(ChangesRouted, broker.notice(number=1, applied=1, fresh=True)) == []
    last = len(submit.commands)
    assert of(ChangesRouted, broker.notice(number=2, applied=last)) == [ChangesRouted(ticket=1)]


def test_a_refusal_comes_with_its_ticket_before_the_change_counts_as_settled() -> None:
    broker = Broker().joined()
    broker.say(CHANGE, 7)
    broker.say(CHANGE, 8)
    effects = broker.notice(notices.Refused("a", "too many", 3), applied=3)
    assert [each for each in effects if isinstance(each, StreamRefused | ChangesSettled)] == [
        StreamRefused(subject="a", problem="too many", ticket=8),
        ChangesSettled(ticket=8),
    ]


def test_messages_go_on_after_a_second() -> None:
    broker = Broker().led()
    timers = of(SetTimer, broker.say(CHANGE, 1))
    assert CLEAR_US in [each.delay_us for each in timers if each.name == "clear"]
    broker.now_us += CLEAR_US
    assert broker.fire("clear") == [ChangesKnown(ticket=1)]


def test_nobody_waits_for_a_coordinator_that_has_not_answered_lately() -> None:
    broker = Broker().joined()
    broker.now_us += BEATS * ANSWERS_US + 1
    assert of(ChangesKnown, broker.say(CHANGE, 1)) == [ChangesKnown(ticket=1)]
    assert of(ChangesKnown, Broker().say(CHANGE, 1)) == [ChangesKnown(ticket=1)], "or that was never heard of"


# ── where else clients can go ───────────────────────────────────────────────────────────────────────────────


def test_a_participant_knows_redirect_targets_while_the_leader_refreshes_them() -> None:
    broker = Broker().led()
    two = BrokerInfo("two", "n", Role.EDGE, "127.0.0.1", 1, (Entrance(Scheme.MQTT, "two:1883"),))
    broker.hear(Pulse(1, broker.machine.incarnation, 1, (two,)))
    machine, until_us = broker.machine, BEATS * ANSWERS_US
    assert machine.refuge(Scheme.MQTT, 0, until_us) == "two:1883"
    assert machine.refuge(Scheme.MQTTS, 0, until_us) is None
    assert machine.refuge(Scheme.MQTT, 0, until_us + 1) is None
    assert Broker().machine.refuge(Scheme.MQTT, 0, 0) is None


def test_clients_are_told_the_planned_backups_first() -> None:
    broker = Broker().joined()
    names = ("local", "remote", "refuge")
    local, remote, refuge = (
        BrokerInfo(each, "n", Role.EDGE, "127.0.0.1", 1, (Entrance(Scheme.MQTT, f"{each}:1883"),))
        for each in names
    )
    broker.hear(Pulse(1, broker.machine.incarnation, 1, (refuge, local)))

    def told(now_us: int) -> list[str]:
        return broker.machine.destinations(Scheme.MQTT, 0, now_us)

    assert told(0) == ["refuge:1883", "local:1883"]
    effects = broker.notice(notices.Backed(local=local, remote=remote))
    assert of(DestinationsChanged, effects) == [DestinationsChanged()]
    assert told(0) == ["local:1883", "remote:1883", "refuge:1883"]
    later_us = 2 * BEATS * ANSWERS_US
    assert told(later_us) == ["local:1883", "remote:1883"], "a plan holds though no leader is heard"
    assert broker.machine.refuge(Scheme.MQTT, 0, 0) == "refuge:1883", "one that is full asks who has room"
    effects = broker.notice(notices.Backed(local=local, remote=remote, locally=("x",)))
    assert of(DestinationsChanged, effects) == [], "its own backups are the same"
    effects = broker.notice(notices.Backed(local=None, remote=remote))
    assert of(DestinationsChanged, effects) == [DestinationsChanged()]
    assert told(later_us) == ["remote:1883"]


def test_a_second_start_is_a_bug_of_ours() -> None:
    with pytest.raises(IllegalEvent):
        Broker().joined().handle(Started(incarnation=2))


# ── its role ────────────────────────────────────────────────────────────────────────────────────────────────

MAY = BrokerInfo("north", "n", Role.EDGE, "127.0.0.1", 1, may_stand_by=True)
STANDS_BY = BrokerInfo("north", "n", Role.STANDBY, "127.0.0.1", 1, may_stand_by=True)


def roles(broker: Broker, role: Role | None) -> list[Role]:
    pulse = Pulse(1, broker.machine.incarnation, broker.number, role=role)
    return [each.role for each in of(RoleChanged, broker.hear(pulse))]


def test_an_idle_broker_stands_by_when_the_leader_wants_it() -> None:
    broker = Broker(MAY).led()
    assert roles(broker, None) == [] == roles(broker, Role.EDGE)
    assert roles(broker, Role.STANDBY) == [Role.STANDBY]


def test_a_broker_with_clients_serves_on() -> None:
    broker = Broker(MAY).led()
    broker.handle(Loaded(load=1, clients=1))
    assert roles(broker, Role.STANDBY) == []
    broker.handle(Loaded(load=0, clients=0))
    assert roles(broker, Role.STANDBY) == [Role.STANDBY]


@pytest.mark.parametrize(
    "item",
    [notices.Backed(locally=("a",)), notices.Backed(remotely=("a",)), notices.TakeOver("a", 1)],
    ids=["local backup", "remote backup", "stand-in"],
)
def test_a_broker_on_which_others_count_serves_on(item: notices.Item) -> None:
    broker = Broker(MAY).led()
    broker.notice(item)
    assert roles(broker, Role.STANDBY) == []


def test_a_released_broker_serves_again() -> None:
    assert roles(Broker(STANDS_BY).led(), Role.EDGE) == [Role.EDGE]


def test_nobody_changes_its_role_without_leave() -> None:
    assert roles(Broker().led(), Role.STANDBY) == []


def test_beats_say_that_a_broker_is_being_recruited() -> None:
    broker = Broker(MAY).led()
    recruiting = Pulse(
        1, broker.machine.incarnation, broker.number, heard=1, moves=Moves(True, 0, recruits=True)
    )
    broker.hear(recruiting)
    assert [each.recruited for each in sent(Beat, broker.fire("beat"))] == [True]
    broker.hear(Pulse(1, broker.machine.incarnation, broker.number, heard=2))
    assert [each.recruited for each in sent(Beat, broker.fire("beat"))] == [False]


# ── another address ─────────────────────────────────────────────────────────────────────────────────────────

MOVED = BrokerInfo(
    NORTH.id, NORTH.cluster, NORTH.role, "127.0.0.9", 1, (Entrance(Scheme.MQTT, "127.0.0.9:1"),)
)


def test_a_broker_that_moves_joins_over_itself_and_says_everything_again() -> None:
    broker = Broker()
    broker.handle(InterestsChanged(added=("a/#",)))
    broker.led()
    before = broker.machine.incarnation
    (read,) = of(ReadLog, broker.handle(Readdressed(info=MOVED)))
    (submit,) = sent(Submit, broker.handle(Stored(request=read.request, value=Page((), 1, 20))))
    assert submit.incarnation > before and submit.first == 1
    assert submit.commands == (Joined(MOVED, speaks()), Interests(("a/#",)))


def test_a_broker_that_moves_while_joining_says_its_new_address() -> None:
    broker = Broker()
    (read,) = of(ReadLog, broker.handle(Started(incarnation=5)))
    assert broker.handle(Readdressed(info=MOVED)) == []
    (submit,) = sent(Submit, broker.handle(Stored(request=read.request, value=Page((), 1, 10))))
    assert submit.commands[0] == Joined(MOVED, speaks())


def test_a_replaced_broker_does_not_take_its_name_back_by_moving() -> None:
    broker = Broker().led()
    broker.notice(fresh=True, incarnation=broker.machine.incarnation + 1, number=1)
    assert broker.handle(Readdressed(info=MOVED)) == []
