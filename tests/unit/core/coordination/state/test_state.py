"""What follows from commands is what a model says that works everything out from scratch."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings

from tests.unit.core.coordination.histories import HUB, LIMITS, LISTED, NORTH, QUERIES, SOUTH, batches
from tocsin.core.coordination.participant.network_view import NetworkView
from tocsin.core.coordination.participant.signals import StreamsDescribed
from tocsin.core.coordination.state import snapshot
from tocsin.core.coordination.state.matching import LISTED_FACTOR, PAIR_BYTES, QUERY_BYTES, TEXT_FACTOR
from tocsin.core.coordination.state.publishers import cost_of
from tocsin.core.coordination.state.state import STEP_BYTES, Outcome, State
from tocsin.core.forwarding.origins import LINGER_US, UNREGISTERED
from tocsin.model.network import Route, Scope
from tocsin.model.stream import DEMAND, KEYS_MAX, LISTING, PERMANENT, Metadata, Value, size_of
from tocsin.sim.scenarios.coordination.model import Model
from tocsin.wire.internal import notices
from tocsin.wire.internal.commands import (
    Batch,
    BrokerCommand,
    ClientAway,
    ClientBack,
    ClientGone,
    Elected,
    Interests,
    Joined,
    Left,
    Limits,
    Lost,
    Planned,
    Queries,
    Raised,
    Refreshed,
    Said,
    Streams,
)

SECOND_US = 1_000_000
LAMPS = QUERIES[0]


class Talk:
    """A state, and brokers that say things to it in order."""

    def __init__(self, *brokers: str, limits: Limits = LIMITS) -> None:
        self.state = State()
        self.state.apply(0, (Elected("c", limits),))
        self.numbers: dict[str, int] = {}
        self.now_us = 0
        for info in (NORTH, SOUTH, HUB):
            if info.id in brokers:
                self.say(info.id, Joined(info))

    def say(self, broker: str, *commands: BrokerCommand, after_s: int = 0) -> Outcome:
        first = self.numbers.get(broker, 0) + 1
        self.numbers[broker] = first + len(commands) - 1
        self.now_us += after_s * SECOND_US
        return self.state.apply(self.now_us, (Said(broker, 1, first, commands),))

    def lamp(self, topic: str = "lamps/1", client: str = "anna", expiry_s: int = 0) -> Outcome:
        return self.say("north", Streams(client, expiry_s, ((topic, {"kind": "lamp"}),), 5))


def of(kind: type[notices.Item], outcome: Outcome, broker: str) -> list[notices.Item]:
    return [item for item in outcome.items.get(broker, []) if isinstance(item, kind)]


# ── against the model ───────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=300, deadline=None)
@given(batches)
def test_streams_queries_and_routes_are_those_of_the_model(history: list[Batch]) -> None:
    state, model = State(), Model()
    pictures: dict[tuple[str, int], NetworkView] = {}
    described: dict[tuple[str, int], dict[str, Metadata]] = {}
    for batch in history:
        outcome = state.apply(batch.at_us, batch.commands)
        model.apply(batch)
        assert dict(state.presence.all_present()) == model.present()
        assert {t: s.keys for t, s in state.presence.streams.items()} == {
            t: s.keys for t, s in model.streams.items()
        }
        assert set(state.members) == set(model.brokers)
        needed, possible = model.routes(lingering=False), model.routes(lingering=True)
        for broker, member in state.members.items():
            picture = pictures.setdefault((broker, member.incarnation), NetworkView())
            queries = {query: state.matching.text(query) for query in member.queries}
            for query in [each for each in picture.sets if each not in queries]:
                picture.forget(query)
            items = outcome.items.get(broker, [])
            effects = picture.apply(items, queries, fresh=broker in outcome.fresh)
            known = described.setdefault((broker, member.incarnation), {})
            for effect in effects:
                if isinstance(effect, StreamsDescribed):
                    if effect.whole:
                        known.clear()
                    known.update(effect.streams)
            assert all(known[topic] == keys for topic, keys in model.described_at(broker).items())
            assert set(picture.routes) == state.interest.plan.routes(broker)
            assert needed[broker] <= picture.routes.keys() <= possible[broker]
            assert queries == model.brokers[broker].queries
            assert picture.sets == {query: model.told(query, text) for query, text in queries.items()}
        alone = len(outcome.concerned) == 1
        for speaker, concerned in outcome.concerned.items():
            assert not (alone and speaker in concerned)
            assert concerned & state.members.keys() <= outcome.items.keys()


@settings(max_examples=100, deadline=None)
@given(batches)
def test_two_replicas_that_apply_the_same_say_the_same(history: list[Batch]) -> None:
    one, two = State(), State()
    for batch in history:
        first, second = one.apply(batch.at_us, batch.commands), two.apply(batch.at_us, batch.commands)
        assert (first.items, first.fresh, first.concerned) == (second.items, second.fresh, second.concerned)


# ── one by one ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_broker_that_asks_is_told_the_streams_that_are_there() -> None:
    talk = Talk("north", "south")
    talk.lamp()
    (told,) = of(notices.QuerySet, talk.say("south", Queries((LISTED,))), "south")
    assert isinstance(told, notices.QuerySet)
    metadata = {"kind": "lamp", "topic": "lamps/1", "client": "anna", "broker": "north", "cluster": "n"}
    assert (told.query, told.streams, told.more) == (LISTED[0], (("lamps/1", metadata),), False)


def test_who_asks_for_messages_is_told_topics_only() -> None:
    talk = Talk("north", "south")
    talk.lamp()
    (told,) = of(notices.QuerySet, talk.say("south", Queries((LAMPS,))), "south")
    assert told == notices.QuerySet(LAMPS[0], (("lamps/1", {}),))
    changed = talk.say("north", Streams("", 0, (("lamps/1", {"room": 2}),)))
    assert "south" not in changed.items, "the stream is one of the query's still"
    joined = talk.lamp("lamps/2")
    assert of(notices.Joined, joined, "south") == [notices.Joined(LAMPS[0], "lamps/2", {})]


def test_a_joining_stream_reaches_its_queries_and_gets_a_route() -> None:
    talk = Talk("north", "south", "hub")
    talk.say("south", Queries((LAMPS,)))
    outcome = talk.lamp()
    (joined,) = of(notices.Joined, outcome, "south")
    assert isinstance(joined, notices.Joined) and joined.topic == "lamps/1"
    (route,) = of(notices.Routes, outcome, "north")
    assert isinstance(route, notices.Routes)
    unregistered, added = Route(Scope.ORIGIN, "@s", UNREGISTERED), Route(Scope.ORIGIN, "@s", "lamps/1")
    assert route.added == (unregistered, added) and route.peers == ()
    assert outcome.concerned == {"north": {"south", "hub"}}


def test_a_listing_hears_of_a_stream_and_gets_no_route() -> None:
    talk = Talk("north", "south", "hub")
    talk.say("south", Queries((LISTED,)))
    outcome = talk.lamp()
    assert len(of(notices.Joined, outcome, "south")) == 1
    assert of(notices.Routes, outcome, "north") == []
    talk.say("south", Queries((LAMPS,)))
    outcome = talk.say("south", Queries((), (LAMPS[0],)))
    assert len(of(notices.Routes, outcome, "north")) == 1, (
        "the route for those who asked for messages is gone"
    )


def test_the_brokers_of_a_streams_publishers_learn_its_metadata() -> None:
    talk = Talk("north", "south", "hub")
    outcome = talk.say("north", Streams("anna", 0, (("a", {}),)))
    assert of(notices.Described, outcome, "north") == [], "nothing is"
    outcome = talk.say("hub", Streams("", 0, (("a", {"kind": "lamp"}),)))
    assert of(notices.Described, outcome, "north") == [notices.Described("a", {"kind": "lamp"})]
    assert of(notices.Described, outcome, "hub") == []
    outcome = talk.say("south", Streams("ben", 0, (("a", {}),)))
    assert of(notices.Described, outcome, "south") == [notices.Described("a", {"kind": "lamp"})]
    outcome = talk.say("hub", Streams("", 0, (("a", None),)))
    for broker in ("north", "south"):
        assert of(notices.Described, outcome, broker) == [notices.Described("a", {})]


def test_a_newer_session_ends_the_older_ones_streams_unless_it_returned() -> None:
    talk = Talk("north", "south", "hub")
    talk.say("south", Queries((LAMPS,)))
    talk.say("north", Streams("anna", 60, (("a", {"kind": "lamp"}), ("b", {"kind": "lamp"})), 0, 1))
    talk.say("north", ClientAway("anna", 60, 0, 1))
    talk.say("hub", ClientBack("anna", 60, 2))
    outcome = talk.say("hub", Streams("anna", 60, (("a", {}),), 0, 2))
    assert of(notices.Left, outcome, "south") == []
    outcome = talk.say("north", Streams("anna", 0, (("a", {}),), 0, 3))
    assert [each.topic for each in of(notices.Left, outcome, "south")] == ["b"]  # type: ignore[attr-defined]
    outcome = talk.say("hub", ClientGone("anna", 0, 4))
    assert len(of(notices.Left, outcome, "south")) == 1, "whoever saw a newer connection knows of its end"


def test_a_change_that_nobody_asked_about_concerns_nobody() -> None:
    talk = Talk("north", "south")
    talk.say("south", Queries((LAMPS,)))
    outcome = talk.say("north", Streams("anna", 0, (("doors/1", {"kind": "door"}),)))
    assert outcome.concerned == {"north": set()} and of(notices.Described, outcome, "south") == []


def test_an_end_names_the_last_position_of_the_streams_messages() -> None:
    talk = Talk("north", "south")
    talk.say("south", Queries((LISTED,)))
    talk.lamp()
    (left,) = of(notices.Left, talk.say("north", ClientGone("anna", 9)), "south")
    assert isinstance(left, notices.Left) and (left.topic, left.after) == ("lamps/1", 9)
    assert left.metadata["kind"] == "lamp"


def test_a_clean_client_ends_with_its_broker_and_a_persistent_one_expires() -> None:
    talk = Talk("north", "south")
    talk.lamp("lamps/clean", "anna")
    talk.lamp("lamps/kept", "ben", expiry_s=10)
    talk.state.apply(0, (Lost("north", 1),))
    assert [topic for topic, _ in talk.state.presence.all_present()] == ["lamps/kept"]
    talk.state.apply(9 * SECOND_US, ())
    assert len(list(talk.state.presence.all_present())) == 1
    talk.state.apply(10 * SECOND_US, ())
    assert list(talk.state.presence.all_present()) == []
    assert set(talk.state.presence.streams) == {"lamps/clean", "lamps/kept"}, "metadata outlive the publisher"
    assert talk.state.next_due_us() == LIMITS.keep_s * SECOND_US
    talk.state.apply(30 * SECOND_US, ())
    assert not talk.state.presence.streams


def test_a_permanent_stream_stays_until_it_is_forgotten() -> None:
    talk = Talk("north")
    talk.say("north", Streams("anna", 0, (("a", {"kind": "lamp", "$permanent": True}),)), ClientGone("anna"))
    assert dict(talk.state.presence.all_present())["a"]["kind"] == "lamp"
    talk.say("north", Streams("", 0, (("a", None),)))
    assert not talk.state.presence.streams


def test_a_client_that_moved_is_not_ended_by_the_broker_it_left() -> None:
    talk = Talk("north", "south")
    talk.say("north", Streams("anna", 0, (("a", {}),), 0, 1))
    talk.say("south", Streams("anna", 0, (("a", {}),), 0, 2))
    talk.say("north", Streams("anna", 0, (("a", {"kind": "lamp"}),), 0, 1), ClientGone("anna", 0, 1))
    (metadata,) = dict(talk.state.presence.all_present()).values()
    assert metadata == {"kind": "lamp", "topic": "a", "client": "anna", "broker": "south", "cluster": "s"}


def test_a_session_that_is_back_in_time_keeps_its_streams() -> None:
    talk = Talk("north", "south")
    talk.lamp(expiry_s=10)
    talk.say("north", ClientAway("anna", 10))
    talk.say("south", ClientBack("anna", 10), after_s=5)
    talk.state.apply(60 * SECOND_US, ())
    assert dict(talk.state.presence.all_present())["lamps/1"]["broker"] == "south"


def test_the_keys_of_the_system_are_the_systems() -> None:
    talk = Talk("north")
    talk.say("north", Streams("anna", 0, (("a", {"broker": "x", "topic": "y"}),)))
    assert dict(talk.state.presence.all_present())["a"]["broker"] == "north"


def test_too_many_streams_queries_and_keys_are_refused_in_words() -> None:
    talk = Talk("north", limits=Limits(streams_max=1, queries_max=1, keep_s=10))
    talk.lamp("one")
    (refused,) = of(notices.Refused, talk.lamp("two"), "north")
    assert refused == notices.Refused("two", "there are 1 streams already", 3)
    outcome = talk.say("north", Queries(QUERIES[:2]))
    assert of(notices.Refused, outcome, "north") == [
        notices.Refused(QUERIES[1][0], "there are 1 queries already")
    ]
    many = {f"key{number}": number for number in range(KEYS_MAX)}
    (refused,) = of(notices.Refused, talk.say("north", Streams("anna", 0, (("one", {**many}),))), "north")
    assert refused == notices.Refused("one", f"a stream has at most {KEYS_MAX} keys", talk.numbers["north"])


def test_publishers_over_the_bound_are_refused_and_known_ones_are_not() -> None:
    talk = Talk("north", limits=Limits(publishers_max=1, keep_s=10))
    talk.lamp("one", expiry_s=60)
    talk.say("north", ClientAway("anna", 60))
    (refused,) = of(notices.Refused, talk.lamp("two", "bert"), "north")
    assert refused == notices.Refused("two", "there are 1 clients that publish already", 4)
    assert not of(notices.Refused, talk.lamp("three", "anna"), "north")
    assert set(talk.state.presence.streams) == {"one", "three"}
    talk.say("north", ClientGone("anna"))
    assert not of(notices.Refused, talk.lamp("two", "bert"), "north"), "there is room again"


def test_an_absent_stream_makes_room_for_a_new_one() -> None:
    talk = Talk("north", limits=Limits(streams_max=1, keep_s=1_000))
    talk.lamp("one")
    talk.say("north", ClientGone("anna"))
    talk.lamp("two")
    assert set(talk.state.presence.streams) == {"two"}


def test_a_query_that_cannot_be_read_is_satisfied_by_nothing() -> None:
    talk = Talk("north")
    talk.lamp()
    (told,) = of(notices.QuerySet, talk.say("north", Queries((("x", "AND AND"),))), "north")
    assert told == notices.QuerySet("x", ())


def test_a_restarted_broker_is_told_everything_and_its_last_incarnation_ends() -> None:
    talk = Talk("north", "south")
    talk.say("north", Queries((LAMPS,)), Interests(("a/#",)))
    talk.lamp()
    outcome = talk.state.apply(0, (Said("north", 5, 1, (Joined(NORTH),)),))
    assert outcome.fresh == {"north": None}
    assert not list(talk.state.presence.all_present()) and not len(talk.state.matching)
    before = talk.state.members["north"]
    talk.state.apply(0, (Said("north", 1, 5, (Interests(("b",)),)), Said("north", 4, 1, (Joined(NORTH),))))
    assert talk.state.members["north"] is before and not before.filters


def test_a_broker_that_was_lost_cannot_come_back_under_its_old_number() -> None:
    talk = Talk("north")
    talk.state.apply(0, (Lost("north", 1),))
    talk.state.apply(0, (Said("north", 1, 1, (Joined(NORTH),)),))
    assert not talk.state.members


def test_what_comes_after_a_leave_has_no_effect() -> None:
    talk = Talk("north")
    outcome = talk.say("north", Left(), Interests(("a",)))
    assert not talk.state.members and outcome.items == {}


def test_senders_are_told_when_a_broker_changes_its_address() -> None:
    talk = Talk("north", "south")
    talk.say("south", Interests(("a",)))
    moved = type(SOUTH)(SOUTH.id, SOUTH.cluster, SOUTH.role, "10.0.0.1", 9)
    outcome = talk.state.apply(0, (Said("south", 2, 1, (Joined(moved), Interests(("a",)))),))
    routes = of(notices.Routes, outcome, "north")
    assert any(isinstance(each, notices.Routes) and moved in each.peers for each in routes)


def test_everybody_is_told_when_a_member_of_a_tier_changes_its_address() -> None:
    talk = Talk("north", "hub")
    talk.state.apply(0, (Raised(1),))
    moved = type(HUB)(HUB.id, HUB.cluster, HUB.role, "10.0.0.1", 9)
    outcome = talk.state.apply(0, (Said("hub", 2, 1, (Joined(moved),)),))
    (carriers,) = of(notices.Carriers, outcome, "north")
    assert carriers == notices.Carriers("s", peers=(moved,))


def test_who_asks_for_it_is_told_everything() -> None:
    talk = Talk("north", "south")
    talk.say("south", Queries((LAMPS,)))
    talk.lamp()
    outcome = talk.state.apply(0, (Refreshed("south", 1),))
    assert outcome.fresh == {"south": None} and len(of(notices.QuerySet, outcome, "south")) == 1
    assert talk.state.apply(0, (Refreshed("south", 9),)).items == {}


def test_what_is_said_of_one_stream_is_bounded_whoever_says_it() -> None:
    talk = Talk("north", limits=Limits(metadata_max_bytes=100))
    talk.say("north", Streams("anna", 0, (("one", {"a": "x" * 60}),)))
    outcome = talk.say("north", Streams("", 0, (("one", {"b": "y" * 60}),)))
    problem = "the metadata of one stream would be 130 bytes; at most 100 are kept"
    assert of(notices.Refused, outcome, "north") == [notices.Refused("one", problem, 3)]
    assert of(notices.Described, outcome, "north") == [notices.Described("one", {"a": "x" * 60})]
    assert talk.state.presence.streams["one"].keys == {"a": "x" * 60}
    refused = talk.say("north", Streams("", 0, (("two", {"b": "y" * 100}),)))
    assert of(notices.Described, refused, "north") == [notices.Described("two", {})]
    assert "two" not in talk.state.presence.streams
    assert not of(notices.Refused, talk.say("north", Streams("", 0, (("one", {"a": 1, "b": "ö"}),))), "north")
    assert not of(notices.Refused, talk.say("north", Streams("", 0, (("one", None),))), "north")


def test_what_was_larger_before_there_was_a_bound_may_become_smaller() -> None:
    talk = Talk("north", limits=Limits())
    talk.say("north", Streams("anna", 0, (("one", {"a": "x" * 500, "b": "y" * 500}),)))
    talk.state.apply(0, (Elected("d", Limits(metadata_max_bytes=100)),))
    assert not of(notices.Refused, talk.say("north", Streams("", 0, (("one", {"a": None}),))), "north")
    assert of(notices.Refused, talk.say("north", Streams("", 0, (("one", {"c": 1}),))), "north")
    assert talk.state.presence.streams["one"].keys == {"b": "y" * 500}


# ── bounds in bytes ─────────────────────────────────────────────────────────────────────────────────────────


def refused(outcome: Outcome, broker: str = "north") -> list[str]:
    return [each.problem for each in outcome.items.get(broker, ()) if isinstance(each, notices.Refused)]


@settings(max_examples=200, deadline=None)
@given(batches)
def test_what_streams_and_queries_cost_is_what_there_is(history: list[Batch]) -> None:
    state = State()
    for batch in history:
        state.apply(batch.at_us, batch.commands)
        streams = state.presence.streams
        costs = {t: cost_of(t, s.keys, len(s.publishers)) for t, s in streams.items()}
        assert {t: s.cost for t, s in streams.items()} == costs
        assert state.presence.cost == sum(costs.values()) == sum(state.presence.cost_of_user.values())
        pairs = sum(len(state.matching.topics(query)) for query in state.askers)
        texts = sum(len(state.matching.text(query)) for query in state.askers)
        listed = sum(
            size_of(streams[topic].metadata)
            for query in state.askers
            for topic in state.matching.topics(query)
            if query.startswith(LISTING)
        )
        cost = QUERY_BYTES * len(state.askers) + TEXT_FACTOR * texts + PAIR_BYTES * pairs
        cost += LISTED_FACTOR * listed
        assert state.matching.cost == cost
    restored = snapshot.restore(snapshot.take(state))
    assert restored.presence.cost_of_user == state.presence.cost_of_user
    assert (restored.told, restored.matching.cost) == (state.told, state.matching.cost)
    assert restored.spending.debts == state.spending.debts


def describe(talk: Talk, topic: str, user: str, text: str = "x" * 500, permanent: bool = True) -> list[str]:
    said: dict[str, Value | None] = {"a": text, PERMANENT: permanent}
    return refused(talk.say("north", Streams("", 0, ((topic, said),), user=user)))


def test_a_user_may_describe_streams_up_to_its_quota() -> None:
    talk = Talk("north", limits=Limits(streams_max_bytes=20_000, streams_user_bytes=10_000))
    problems = [describe(talk, f"{number}", "mallory") for number in range(10)]
    assert problems[:5] == [[]] * 5
    assert problems[5:] == [["the streams of one user may take 10000 bytes together"]] * 5
    assert describe(talk, "0", "anna") == [], "whoever says something of it has it on her account"
    assert describe(talk, "5", "mallory") == []
    assert [describe(talk, f"a{number}", "anna") for number in range(5)] == [[]] * 4 + [
        ["the streams of one user may take 10000 bytes together"]
    ]
    assert describe(talk, "b", "ben") == []
    assert describe(talk, "c", "ben") == ["all streams may take 20000 bytes together"]
    talk.say("north", Streams("", 0, (("1", None),), user="mallory"))
    assert describe(talk, "c", "ben") == []
    assert talk.state.presence.cost <= 20_000


def test_streams_on_which_nobody_publishes_go_before_others_are_refused() -> None:
    talk = Talk("north", limits=Limits(streams_max_bytes=8_000, streams_user_bytes=8_000))
    for user in ("mallory", "ben"):
        for number in range(4):
            assert describe(talk, f"{user}/{number}", user, permanent=False) == []
    assert talk.state.presence.cost <= 8_000
    assert "ben/3" in talk.state.presence.streams and "mallory/0" not in talk.state.presence.streams


def test_a_publishing_client_counts_against_its_user_and_redeclarations_do_not() -> None:
    talk = Talk("north", limits=Limits(streams_max_bytes=8_000, streams_user_bytes=4_100))
    for client in ("anna", "ben", "cleo"):
        assert refused(talk.say("north", Streams(client, 9, (("a", {}),), user="u"))) == []
    assert refused(talk.say("north", Streams("dan", 9, (("a", {}),), user="u")))
    assert talk.state.presence.streams["a"].owner == "u"
    assert refused(talk.say("north", Streams("cleo", 9, (("a", {}),)))) == []
    talk.say("north", ClientGone("anna"))
    assert refused(talk.say("north", Streams("dan", 9, (("a", {}),), user="u"))) == []


def test_queries_and_their_streams_are_bounded() -> None:
    talk = Talk("north", limits=Limits(queries_max_bytes=5_000))
    assert refused(talk.say("north", Queries((QUERIES[0],), users=("u",)))) == []
    assert refused(talk.say("north", Queries((QUERIES[1],), users=("u",)))) == []
    told = "all queries and their streams may take 5000 bytes together"
    assert refused(talk.say("north", Queries((QUERIES[2],), users=("u",)))) == [told]
    assert QUERIES[2][0] not in talk.state.matching
    talk.say("north", Queries((), (QUERIES[1][0],)))
    assert refused(talk.say("north", Queries((QUERIES[2],), users=("u",)))) == []


def test_who_asks_what_is_wanted_is_charged_for_the_counting() -> None:
    talk = Talk("north", "south", limits=Limits(told_burst_bytes=20_000, told_rate_bytes=100))
    talk.say("north", Interests(tuple(f"hall/{number}" for number in range(100))))
    everything, one = ((f"{DEMAND}{each}", each) for each in ("#", "hall/7"))
    assert refused(talk.say("south", Queries((one,), users=("ben",))), "south") == []
    assert refused(talk.say("south", Queries((everything,), users=("mallory",))), "south") == []
    assert (
        talk.state.spending.debts["mallory"][0] >= 100 * STEP_BYTES > 10 * talk.state.spending.debts["ben"][0]
    )
    (problem,) = refused(talk.say("south", Queries((QUERIES[1],), users=("mallory",))), "south")
    assert problem.startswith("too much had to be told")


def test_who_has_made_others_be_told_too_much_waits() -> None:
    talk = Talk("north", "south", limits=Limits(told_burst_bytes=1_000, told_rate_bytes=100))
    for number in range(20):
        talk.say("north", Streams("anna", 9, ((f"lamps/{number}", {"kind": "lamp"}),), user="anna"))
    asked = Queries((LISTED,), users=("mallory",))
    assert refused(talk.say("south", asked), "south") == []
    talk.say("south", Queries((), (LISTED[0],)))
    (problem,) = refused(talk.say("south", asked), "south")
    assert problem.startswith("too much had to be told because of this user's clients; try again in")
    assert refused(talk.say("south", Queries((LISTED,), users=("ben",))), "south") == [], "another's account"
    talk.say("south", Queries((), (LISTED[0],)))
    assert describe(talk, "x", "mallory"), "also to describe"
    assert not refused(talk.say("north", Streams("", 0, (("x", None),), user="mallory")))
    assert refused(talk.say("south", asked, after_s=60), "south") == []
    talk.say("south", Queries((), (LISTED[0],)))
    assert refused(talk.say("south", Queries((LISTED,))), "south") == [], (
        "what a broker says again is not asked"
    )


def test_senders_hear_of_a_moved_broker_and_keep_their_routes() -> None:
    talk = Talk("north", "south")
    talk.say("north", Interests(("a/#",)))
    moved = msgspec.structs.replace(NORTH, host="127.0.0.9")
    epoch = talk.state.survival.epoch
    outcome = talk.state.apply(talk.now_us, (Said("north", 2, 1, (Joined(moved), Interests(("a/#",)))),))
    routes = [item for item in of(notices.Routes, outcome, "south") if isinstance(item, notices.Routes)]
    assert moved in [peer for item in routes for peer in item.peers]
    added = [route for item in routes for route in item.added]
    removed = [route for item in routes for route in item.removed]
    assert sorted(added, key=str) == sorted(removed, key=str), (
        "one notice takes them away and gives them back"
    )
    assert not talk.state.survival.vacancies and talk.state.survival.epoch == epoch


def test_all_hear_where_a_stand_in_has_moved() -> None:
    talk = Talk("north", "south", "hub")
    plan = (("north", "south", "hub"), ("south", "hub", "north"), ("hub", "south", "north"))
    talk.state.apply(0, (Planned(plan), Lost("hub", 1)))
    moved = msgspec.structs.replace(SOUTH, host="127.0.0.9")
    outcome = talk.state.apply(0, (Said("south", 2, 1, (Joined(moved),)),))
    epoch = talk.state.survival.vacancies["hub"].epoch
    assert of(notices.Moved, outcome, "north") == [notices.Moved("hub", moved, epoch, gone=True)]


def test_a_broker_gets_its_route_with_its_stream_and_keeps_it() -> None:
    talk = Talk("north", "south", "hub")
    talk.say("south", Interests(("lamps/#", "other")))
    route = Route(Scope.ORIGIN, "@s", "lamps/#")

    def routes() -> frozenset[Route]:
        return talk.state.interest.plan.routes("north")

    assert routes() == {Route(Scope.ORIGIN, "@s", UNREGISTERED)}
    (told,) = of(notices.Routes, talk.lamp(), "north")
    assert isinstance(told, notices.Routes) and told.added == (route,)
    assert of(notices.Routes, talk.say("north", ClientGone("anna", 5)), "north") == []
    assert talk.state.next_due_us() == LINGER_US and route in routes()
    talk.now_us += 2 * LINGER_US
    outcome = talk.state.apply(talk.now_us, ())
    (told,) = of(notices.Routes, outcome, "north")
    assert isinstance(told, notices.Routes) and told.removed == (route,)
    assert routes() == {Route(Scope.ORIGIN, "@s", UNREGISTERED)}


def test_a_change_is_told_to_nobody_who_does_not_publish_on_it() -> None:
    talk = Talk("north", "south", "hub")
    talk.say("south", Interests(("other",)))
    talk.lamp()
    assert set(talk.say("south", Interests(("fresh",))).told) == {"hub"}
    assert set(talk.say("south", Interests(("lamps/1",))).told) == {"hub", "north"}


def test_a_client_that_is_elsewhere_leaves_its_routes_for_a_while() -> None:
    talk = Talk("north", "south", "hub")
    talk.say("south", Streams("anna", 0, (("lamps/1", {}),), epoch=2))
    talk.say("north", Streams("anna", 0, (("lamps/1", {}),), epoch=1))
    plan = talk.state.interest.plan
    assert plan.origins.holds("lamps/1", "north") and plan.origins.holds("lamps/1", "south")
    talk.state.apply(2 * LINGER_US, ())
    assert not plan.origins.holds("lamps/1", "north") and plan.origins.holds("lamps/1", "south")
