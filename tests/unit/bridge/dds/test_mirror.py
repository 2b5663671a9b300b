"""The mirror: which endpoints it has, and what becomes of samples and messages."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.bridge.dds import mirror as module
from tocsin.bridge.dds.mapping import Names, Sample, message_of
from tocsin.bridge.dds.mirror import Mirror, overlap
from tocsin.bridge.dds.quality import FOREVER, Durability, Quality
from tocsin.bridge.dds.signals import (
    Acknowledge,
    BridgeFound,
    BridgeGone,
    Drop,
    Endpoint,
    EndpointFound,
    EndpointGone,
    Heard,
    Made,
    MakeFailed,
    MakeReader,
    MakeWriter,
    Pause,
    Publish,
    Published,
    PublishFailed,
    Replay,
    Replayed,
    Subscribe,
    Taken,
    Unsubscribe,
    Write,
    Written,
)
from tocsin.client.message import Message
from tocsin.core.machine import Effect, Event, SetTimer, TimerFired

RELIABLE = Quality(reliable=True)
KEPT = Quality(reliable=True, durability=Durability.TRANSIENT_LOCAL)
DATA = b"\0\1\0\0data"


def writer(key: str, quality: Quality = RELIABLE, topic: str = "Square") -> Endpoint:
    return Endpoint(key, True, topic, "Shape", quality)


def reader(key: str, quality: Quality = RELIABLE, topic: str = "Square") -> Endpoint:
    return Endpoint(key, False, topic, "Shape", quality)


def message(
    text: bytes = DATA, *, qos: int = 1, time_ns: int = 1, origin: str = "far", **said: Any
) -> Message:
    publication = message_of(
        Sample(text, time_ns, "w" * 32, **said), "dds/Square", origin, qos=qos, lifespan_ns=FOREVER
    )
    return Message(
        "dds/Square",
        text,
        qos,
        user_properties=publication.user_properties,
        content_type="application/vnd.omg.cdr",
    )


class Bench:
    """A mirror with a shell that makes what it wants at once, unless told otherwise."""

    def __init__(self, name: str = "near", *, makes: bool = True) -> None:
        self.mirror = Mirror(name, Names())
        self.makes = makes
        self.there: dict[str, Effect] = {}
        self.subscribed: set[str] = set()
        self.seen: list[Effect] = []
        self.acknowledged: Counter[int] = Counter()
        self.token = 0
        for each in self.mirror.start():
            self._do(each)

    def tell(self, *events: Event) -> list[Effect]:
        effects: list[Effect] = []
        for event in events:
            found = self.mirror.handle(event, 0)
            effects += found
            for each in found:
                effects += self._do(each)
        self.seen += effects
        return effects

    def _do(self, effect: Effect) -> list[Effect]:
        match effect:
            case MakeReader(entity=entity) | MakeWriter(entity=entity):
                self.there[entity] = effect
                return self.tell(Made(entity=entity)) if self.makes else []
            case Drop(entity=entity):
                del self.there[entity]
            case Subscribe(topic=topic):
                self.subscribed.add(topic)
            case Unsubscribe(topic=topic):
                self.subscribed.remove(topic)
            case Acknowledge(token=token):
                self.acknowledged[token] += 1
        return []

    def hear(self, said: Message) -> list[Effect]:
        self.token += 1
        return self.tell(Heard(token=self.token, message=said, now_ns=9))

    def fire(self, effects: list[Effect]) -> list[Effect]:
        return self.tell(*(TimerFired(name=each.name) for each in effects if isinstance(each, SetTimer)))

    def of(self, kind: type[Effect]) -> list[Any]:
        return [each for each in self.there.values() if isinstance(each, kind)]


def only(effects: list[Effect], kind: type[Effect]) -> Any:
    (found,) = [each for each in effects if isinstance(each, kind)]
    return found


def test_a_writer_is_mirrored_by_a_reader_that_matches_it() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=writer("w1", KEPT)))
    (made,) = bench.of(MakeReader)
    assert (made.topic, made.type_name, made.like) == ("Square", "Shape", ("w1",))
    assert (made.quality.reliable, made.quality.durability) == (True, Durability.TRANSIENT_LOCAL)
    assert bench.subscribed == {"dds/$ask/#", "dds/$told/near/#"}


@pytest.mark.parametrize("topic", ["x" * 1_020, "/".join("x" * 32), "a\x00b"])
def test_an_endpoint_whose_topic_no_broker_takes_is_left_out(topic: str) -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=msgspec.structs.replace(writer("w1", KEPT), topic=topic)))
    assert not bench.of(MakeReader)
    assert "it is left out" in bench.mirror.problems["topics"]


def test_samples_become_messages_of_the_quality_that_was_offered() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=writer("w1", Quality(lifespan_ns=1_500_000_000, partitions=("hall",)))))
    (made,) = bench.of(MakeReader)
    sent = only(bench.tell(Taken(entity=made.entity, samples=(Sample(DATA, 5, "w1"),))), Publish).publication
    assert (sent.topic, sent.payload, sent.qos, sent.expiry_s) == ("dds/Square", DATA, 0, 2)
    assert ("dds-partition", "hall") in sent.user_properties


def test_what_two_readers_of_ours_get_is_published_once() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=writer("r")), EndpointFound(endpoint=writer("b", Quality())))
    readers = {each.quality.reliable: each.entity for each in bench.of(MakeReader)}
    samples = (Sample(DATA, 1, "r"), Sample(DATA, 2, "b"))
    best_effort = bench.tell(Taken(entity=readers[False], samples=samples))  # it matches both writers
    reliable = bench.tell(Taken(entity=readers[True], samples=samples[:1]))
    assert [each.publication.qos for each in best_effort if isinstance(each, Publish)] == [0]
    assert [each.publication.qos for each in reliable if isinstance(each, Publish)] == [1]


def test_the_last_words_of_a_writer_are_taken_before_its_reader_goes() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=writer("w1")))
    (made,) = bench.of(MakeReader)
    effects = bench.tell(EndpointGone(key="w1"))
    assert bench.tell(Taken(entity=made.entity, samples=(Sample(DATA, 5, ""),)))
    bench.fire(effects)
    assert not bench.there


def test_a_reader_whose_writer_is_back_in_time_stays() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=writer("w1")))
    effects = bench.tell(EndpointGone(key="w1"), EndpointFound(endpoint=writer("w2")))
    before = dict(bench.there)
    bench.fire(effects)
    assert bench.there == before


def test_what_is_heard_of_a_dropped_entity_is_about_no_other() -> None:
    bench = Bench(makes=False)
    bench.tell(EndpointFound(endpoint=reader("r1")))
    (first,) = bench.of(MakeWriter)
    bench.tell(EndpointGone(key="r1"), EndpointFound(endpoint=reader("r2")))
    (second,) = bench.of(MakeWriter)
    bench.tell(Made(entity=first.entity))
    effects = bench.tell(MakeFailed(entity=second.entity, reason="not told"))
    assert only(bench.fire(effects), MakeWriter).like == ("r2",)


def test_a_message_is_acknowledged_when_every_writer_has_it() -> None:
    bench = Bench()
    other = Endpoint("r2", False, "Square", "OtherShape", RELIABLE)
    bench.tell(EndpointFound(endpoint=reader("r1")), EndpointFound(endpoint=other))
    assert "dds/Square" in bench.subscribed
    writes = [each for each in bench.hear(message()) if isinstance(each, Write)]
    assert len(writes) == 2 and not bench.acknowledged
    bench.tell(Written(token=1))
    assert not bench.acknowledged
    bench.tell(Written(token=1, problem="no room"))
    assert bench.acknowledged == {1: 1}


def test_what_is_heard_while_a_writer_is_made_waits_for_it() -> None:
    bench = Bench(makes=False)
    bench.tell(EndpointFound(endpoint=reader("r1")))
    assert not [each for each in bench.hear(message()) if isinstance(each, Write)]
    (made,) = bench.of(MakeWriter)
    assert only(bench.tell(Made(entity=made.entity)), Write).token == 1


def test_what_waits_for_a_writer_that_goes_is_acknowledged() -> None:
    bench = Bench(makes=False)
    bench.tell(EndpointFound(endpoint=reader("r1")))
    bench.hear(message())
    bench.tell(EndpointGone(key="r1"))
    assert bench.acknowledged == {1: 1} and "dds/Square" not in bench.subscribed


def test_samples_of_a_partition_have_a_writer_of_their_own() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=reader("r1", Quality(reliable=True, partitions=("hall-*",)))))
    assert not bench.of(MakeWriter)
    write = only(bench.hear(message(partitions=("hall-1",))), Write)
    (made,) = bench.of(MakeWriter)
    assert (made.quality.partitions, write.entity) == (("hall-1",), made.entity)
    assert not [each for each in bench.hear(message(time_ns=2)) if isinstance(each, Write)]
    assert bench.acknowledged == {2: 1}


def test_exclusive_readers_are_told_the_strength_of_each_source() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=reader("r1", Quality(exclusive=True))))
    write = only(bench.hear(message(strength=7)), Write)
    strengths = {each.entity: each.quality.strength for each in bench.of(MakeWriter)}
    assert strengths[write.entity] == 7


def test_late_readers_get_what_was_kept_and_nothing_twice() -> None:
    bench, far = Bench(), Bench("far")
    kept = msgspec.structs.replace(KEPT, strength=3, partitions=("hall",))
    far.tell(EndpointFound(endpoint=writer("w" * 32, kept)))
    wanting = msgspec.structs.replace(KEPT, partitions=("", "hall"))
    ask = only(bench.tell(EndpointFound(endpoint=reader("r1", wanting))), Publish).publication
    asked = Message(ask.topic, b"", 1, user_properties=ask.user_properties)
    replay = only(far.hear(asked), Replay)
    assert replay.to == "near"
    samples = *(Sample(DATA, number, "w" * 32) for number in (1, 2)), Sample(DATA, 3, "gone")
    told = [
        each.publication
        for each in far.tell(Replayed(topic="Square", to="near", samples=samples))
        if isinstance(each, Publish)
    ]
    bench.hear(message(time_ns=2, partitions=("hall",), strength=3))  # the second came by itself already
    assert len(told) == 2
    for each in told:
        assert each.topic == "dds/$told/near/Square"
        assert {("dds-partition", "hall"), ("dds-strength", "3")} <= set(each.user_properties)
        bench.hear(Message(each.topic, each.payload, 1, user_properties=each.user_properties))
    written = {each.token: each.entity for each in bench.seen if isinstance(each, Write)}
    assert len(written) == 2 and len(set(written.values())) == 1
    assert bench.mirror.figures.repeated == 1
    assert not [each for each in bench.hear(asked) if isinstance(each, Replay)], "its own question"


@pytest.mark.parametrize("name", ["a/b", "#", "x" * 1_020])
def test_who_asks_under_a_name_that_is_none_gets_nothing(name: str) -> None:
    far = Bench("far")
    far.tell(EndpointFound(endpoint=writer("w1", KEPT)))
    asked = Message("dds/$ask/Square", b"", 1, user_properties=(("tocsin-bridge", name),))
    assert not [each for each in far.hear(asked) if isinstance(each, Replay)]


def test_of_two_bridges_the_first_by_name_works() -> None:
    bench = Bench("m")
    bench.tell(EndpointFound(endpoint=writer("w1")), EndpointFound(endpoint=reader("r1")))
    assert len(bench.there) == 2
    effects = bench.tell(BridgeFound(key="p", name="a"))
    bench.fire(effects)
    assert not bench.there and not bench.mirror.active
    bench.tell(EndpointFound(endpoint=writer("w2")))
    assert not bench.there
    bench.tell(BridgeGone(key="p"))
    assert len(bench.there) == 2 and bench.mirror.active


def test_readers_wait_while_the_network_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUT_MAX_BYTES", 2_000)
    bench = Bench()
    bench.tell(EndpointFound(endpoint=writer("w1")))
    (made,) = bench.of(MakeReader)
    samples = tuple(Sample(DATA * 50, number, "w1") for number in range(4))
    effects = bench.tell(Taken(entity=made.entity, samples=samples))
    assert only(effects, Pause).paused
    tokens = [each.token for each in effects if isinstance(each, Publish)]
    later = [each for token in tokens for each in bench.tell(Published(token=token))]
    assert not only(later, Pause).paused and bench.mirror.in_flight == 0


def test_best_effort_goes_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_MAX_BYTES", 1_000)
    bench = Bench(makes=False)
    bench.tell(EndpointFound(endpoint=reader("r1", Quality())))
    for number in range(3):
        bench.hear(message(qos=0, time_ns=number))
    assert bench.mirror.figures.dropped == 1 and bench.acknowledged == {3: 1}


def test_a_reliable_sample_is_published_again_until_it_is_taken() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=writer("w1")))
    (made,) = bench.of(MakeReader)
    sent = only(bench.tell(Taken(entity=made.entity, samples=(Sample(DATA, 5, "w1"),))), Publish)
    again = only(bench.fire(bench.tell(PublishFailed(token=sent.token, reason="full"))), Publish)
    assert again.publication == sent.publication
    bench.tell(PublishFailed(token=sent.token, reason="not allowed", final=True))
    assert bench.mirror.in_flight == 0 and bench.mirror.figures.refused == 1


def test_wrong_messages_cost_themselves_alone() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=reader("r1")))
    for wrong in (
        Message("dds/Square", b"", 1),
        message(origin="near"),
        Message("dds/$told/near/X", b"\0" * 9, 1),
    ):
        bench.hear(wrong)
    assert bench.acknowledged == {1: 1, 2: 1, 3: 1}
    assert (bench.mirror.figures.refused, bench.mirror.figures.looped) == (1, 1)


def test_endpoints_beyond_the_bound_are_not_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENDPOINTS_MAX", 2)
    bench = Bench()
    bench.tell(*(EndpointFound(endpoint=writer(f"w{each}", topic=f"T{each}")) for each in range(3)))
    assert len(bench.there) == 2 and "endpoints" in bench.mirror.problems


@pytest.mark.parametrize(
    ("some", "others", "common"),
    [
        ((), (), True),
        (("a",), (), False),
        (("a", "b"), ("b",), True),
        (("hall-*",), ("hall-1",), True),
        (("hall-1",), ("hall-*",), True),
        (("h*",), ("ha*",), False),
        (("*",), (), True),
    ],
)
def test_partitions_overlap_as_dds_has_it(
    some: tuple[str, ...], others: tuple[str, ...], common: bool
) -> None:
    assert overlap(some, others) is common


endpoints = st.builds(
    Endpoint,
    key=st.sampled_from("abcdef"),
    writes=st.booleans(),
    topic=st.sampled_from(("One", "Two")),
    type_name=st.sampled_from(("T", "U")),
    quality=st.builds(Quality, reliable=st.booleans(), partitions=st.sampled_from(((), ("p",)))),
)
steps = st.lists(
    st.one_of(
        endpoints.map(lambda each: EndpointFound(endpoint=each)),
        st.sampled_from("abcdef").map(lambda key: EndpointGone(key=key)),
        st.just(BridgeFound(key="p", name="a")),
        st.just(BridgeGone(key="p")),
    ),
    max_size=30,
)


@settings(max_examples=300)
@given(steps, st.booleans())
def test_what_there_is_follows_from_the_endpoints_and_not_from_their_order(
    told: list[Event], makes: bool
) -> None:
    bench = Bench(makes=makes)
    known: dict[str, Endpoint] = {}
    bridges = set()
    for event in told:
        match event:
            case EndpointFound(endpoint=endpoint):
                known[endpoint.key] = endpoint
            case EndpointGone(key=key):
                known.pop(key, None)
            case BridgeFound(key=key):
                bridges.add(key)
            case BridgeGone(key=key):
                bridges.discard(key)
        bench.fire(bench.tell(event))
    fresh = Bench()
    fresh.tell(*(BridgeFound(key=key, name="a") for key in bridges))
    fresh.fire(fresh.tell(*(EndpointFound(endpoint=each) for each in known.values())))

    def shape(one: Bench) -> set[tuple[object, ...]]:
        made = [each for each in one.there.values() if isinstance(each, MakeReader | MakeWriter)]
        return {(type(each), each.topic, each.type_name, each.quality) for each in made}

    assert shape(bench) == shape(fresh) and bench.subscribed == fresh.subscribed
