"""The mirror: which endpoints it has, and what becomes of samples and messages."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.bridge.dds import mirror as module
from tocsin.bridge.dds import outbox
from tocsin.bridge.dds.announced import ANNOUNCEMENT, PRESENCE, Announcement, Presence, Source
from tocsin.bridge.dds.mapping import Names, Sample, message_of
from tocsin.bridge.dds.mirror import Mirror
from tocsin.bridge.dds.quality import FOREVER, Durability, Liveliness, Quality
from tocsin.bridge.dds.signals import (
    Acknowledge,
    AskWanted,
    BridgeFound,
    BridgeGone,
    Connected,
    Drop,
    Endpoint,
    EndpointFound,
    EndpointGone,
    Heard,
    Lively,
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
    StopAsking,
    Subscribe,
    Taken,
    Unsubscribe,
    WantedTold,
    Write,
    WriteFailed,
    WriterLively,
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
    """A mirror with a shell that makes what it wants at once, and with somebody who wants all topics, unless told
    otherwise."""

    def __init__(self, name: str = "near", *, makes: bool = True, wanted: bool = True) -> None:
        self.mirror = Mirror(name, Names(), f"{name}-1")
        self.makes, self.wanted = makes, wanted
        self.asked: set[str] = set()
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
            case AskWanted(topic=topic):
                self.asked.add(topic)
                return self.tell(WantedTold(topic=topic, wanted=self.wanted))
            case StopAsking(topic=topic):
                self.asked.remove(topic)
            case Acknowledge(token=token):
                self.acknowledged[token] += 1
        return []

    def announce(
        self, *sources: Source, bridge: str = "far", up: bool = True, topic: str = "Square"
    ) -> list[Effect]:
        presence = PRESENCE.write(Presence("1", up))
        writers = ANNOUNCEMENT.write(Announcement("1", sources)) if sources else b""
        effects = self.hear(Message(f"dds/$bridges/{bridge}", presence, 1))
        return effects + self.hear(Message(f"dds/$writers/{bridge}/{topic}", writers, 1))

    def writes(self) -> dict[int, str]:
        """The writer of ours for each message that was written."""
        return {each.token: each.entity for each in self.seen if isinstance(each, Write)}

    def hear(self, said: Message) -> list[Effect]:
        self.token += 1
        return self.tell(Heard(token=self.token, message=said, now_ns=9))

    def fire(self, effects: list[Effect]) -> list[Effect]:
        return self.tell(*(TimerFired(name=each.name) for each in effects if isinstance(each, SetTimer)))

    def of(self, kind: type[Effect]) -> list[Any]:
        return [each for each in self.there.values() if isinstance(each, kind)]


def source(quality: Quality = RELIABLE, key: str = "w" * 32, kind: str = "Shape") -> Source:
    return Source(key, kind, quality)


def only(effects: list[Effect], kind: type[Effect]) -> Any:
    (found,) = [each for each in effects if isinstance(each, kind)]
    return found


def test_a_writer_is_mirrored_by_a_reader_that_matches_it() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=writer("w1", KEPT)))
    (made,) = bench.of(MakeReader)
    assert (made.topic, made.type_name, made.like) == ("Square", "Shape", ("w1",))
    assert (made.quality.reliable, made.quality.durability) == (True, Durability.TRANSIENT_LOCAL)
    assert bench.subscribed == {"dds/$ask/#", "dds/$told/near/#", "dds/$bridges/#", "dds/$writers/#"}


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
    bench.announce(source())
    bench.tell(EndpointFound(endpoint=reader("r1")))
    (first,) = bench.of(MakeWriter)
    bench.fire(bench.tell(EndpointGone(key="r1")))
    bench.tell(EndpointFound(endpoint=reader("r2")))
    (second,) = bench.of(MakeWriter)
    assert first.entity != second.entity
    bench.tell(Made(entity=first.entity))
    effects = bench.tell(MakeFailed(entity=second.entity, reason="not told"))
    assert only(bench.fire(effects), MakeWriter).like == ("r2",)


def test_a_message_is_acknowledged_when_its_writer_has_it() -> None:
    bench = Bench()
    bench.announce(source())
    bench.tell(EndpointFound(endpoint=reader("r1")))
    assert "dds/Square" in bench.subscribed
    first = only(bench.hear(message()), Write).token
    second = only(bench.hear(message(time_ns=2)), Write).token
    assert not {first, second} & bench.acknowledged.keys()
    bench.tell(Written(tokens=(first,)), WriteFailed(token=second, problem="no room"))
    assert bench.acknowledged[first] == bench.acknowledged[second] == 1
    assert (bench.mirror.figures.written, bench.mirror.figures.refused) == (1, 1)


def test_what_is_heard_while_a_writer_is_made_waits_for_it() -> None:
    bench = Bench(makes=False)
    bench.announce(source())
    bench.tell(EndpointFound(endpoint=reader("r1")))
    assert not [each for each in bench.hear(message()) if isinstance(each, Write)]
    (made,) = bench.of(MakeWriter)
    assert only(bench.tell(Made(entity=made.entity)), Write).token == bench.token


def test_what_waits_for_a_writer_that_goes_is_acknowledged() -> None:
    bench = Bench(makes=False)
    bench.announce(source())
    bench.tell(EndpointFound(endpoint=reader("r1")))
    bench.hear(message())
    bench.fire(bench.tell(EndpointGone(key="r1")))
    assert bench.acknowledged[bench.token] == 1 and "dds/Square" not in bench.subscribed


def test_a_mirror_offers_what_its_sources_offer_whatever_readers_ask() -> None:
    bench = Bench()
    offered = Quality(True, deadline_ns=7, lease_ns=9, liveliness=Liveliness.BY_TOPIC, partitions=("hall-1",))
    bench.announce(source(offered), source(offered, "v"), source(Quality(), "u"))
    asked = Quality(True, deadline_ns=3, partitions=("hall-*",))
    bench.tell(EndpointFound(endpoint=reader("r1", asked)))
    (made,) = bench.of(MakeWriter)
    assert (made.quality, made.like) == (offered, ("r1",))
    assert "deadline" in bench.mirror.problems["endpoints of Square"]
    before = dict(bench.there)
    bench.tell(EndpointFound(endpoint=reader("r2", msgspec.structs.replace(asked, deadline_ns=1))))
    assert bench.there == before, "a later reader changes nothing for the first"
    assert only(bench.hear(message(partitions=("hall-1",))), Write).entity == made.entity


def test_each_exclusive_owner_has_a_mirror_of_its_own() -> None:
    bench = Bench()
    weak, strong = Quality(exclusive=True, strength=1), Quality(exclusive=True, strength=7)
    bench.announce(source(strong), source(weak, "v"), source(weak, "u"))
    bench.tell(EndpointFound(endpoint=reader("r1", Quality(exclusive=True))))
    assert sorted(each.quality.strength for each in bench.of(MakeWriter)) == [1, 1, 7]
    write = only(bench.hear(message(strength=7)), Write)
    strengths = {each.entity: each.quality.strength for each in bench.of(MakeWriter)}
    assert strengths[write.entity] == 7


def test_a_writer_whose_type_is_another_is_left_and_said() -> None:
    bench = Bench()
    bench.announce(source(kind="Other"))
    bench.tell(EndpointFound(endpoint=reader("r1")))
    bench.hear(message())
    assert not bench.of(MakeWriter) and bench.acknowledged[bench.token] == 1
    assert "is Other, and a reader's here is Shape" in bench.mirror.problems["endpoints of Square"]


def test_a_mirror_goes_with_its_last_source() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=reader("r1")))
    bench.announce(source(), source(key="v"))
    assert len(bench.of(MakeWriter)) == 1
    bench.fire(bench.announce(source(key="v")))
    assert len(bench.of(MakeWriter)) == 1
    effects = bench.announce()
    assert len(bench.of(MakeWriter)) == 1, "what came last is still to be written"
    bench.fire(effects)
    assert not bench.there


def test_a_bridge_that_is_gone_takes_its_writers_with_it() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=reader("r1")))
    bench.announce(source())
    late_will = PRESENCE.write(Presence("0", False))
    bench.fire(bench.hear(Message("dds/$bridges/far", late_will, 1)))
    assert bench.there, "the will of an earlier incarnation"
    bench.fire(bench.announce(source(), up=False))
    assert not bench.there


def test_our_own_endpoints_are_no_sources_though_another_bridge_announces_them() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=writer("w" * 32)), EndpointFound(endpoint=reader("r1")))
    bench.announce(source())
    assert not bench.of(MakeWriter)


def test_a_message_that_overtakes_the_announcement_of_its_writer_waits_for_it() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=reader("r1")))
    bench.hear(message(qos=0))
    assert not bench.writes()
    bench.announce(source())
    (made,) = bench.of(MakeWriter)
    assert list(bench.writes().values()) == [made.entity]


def test_a_message_of_no_announced_writer_is_written_as_anybodys() -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=reader("r1", Quality(True, deadline_ns=5, partitions=("hall-*",)))))
    effects = bench.hear(message(partitions=("hall-1",)))
    assert not bench.of(MakeWriter)
    bench.fire(effects)
    (made,) = bench.of(MakeWriter)
    assert (made.quality.partitions, made.quality.deadline_ns) == (("hall-1",), 5)
    bench.hear(message(time_ns=2, partitions=("hall-1",)))
    assert set(bench.writes().values()) == {made.entity} and len(bench.writes()) == 2
    bench.hear(message(time_ns=3))
    assert bench.acknowledged[bench.token] == 1, "for no reader's partition"


def test_a_plain_clients_message_is_written_though_another_reader_asks_for_more() -> None:
    bench = Bench(makes=False)
    bench.tell(EndpointFound(endpoint=reader("r1")))
    bench.hear(Message("dds/Square", DATA, 1))
    bench.tell(EndpointFound(endpoint=reader("r2", msgspec.structs.replace(RELIABLE, deadline_ns=1))))
    (made,) = bench.of(MakeWriter)
    assert made.quality.deadline_ns == 1
    bench.tell(Made(entity=made.entity))
    assert set(bench.writes().values()) == {made.entity}


def test_liveliness_of_a_source_is_its_mirrors() -> None:
    near, far = Bench(), Bench("far")
    by_hand = Quality(True, liveliness=Liveliness.BY_TOPIC, lease_ns=1_000)
    near.tell(EndpointFound(endpoint=reader("r1", by_hand)))
    far.fire(far.tell(EndpointFound(endpoint=writer("w1", by_hand))))

    def pass_on(effects: list[Effect]) -> list[Effect]:
        told = only(far.fire(effects), Publish).publication
        assert (told.topic, told.retain) == ("dds/$writers/far/Square", True)
        return near.hear(Message(told.topic, told.payload, 1))

    near.hear(Message("dds/$bridges/far", PRESENCE.write(Presence("far-1", True)), 1))
    far.tell(EndpointFound(endpoint=writer("w2", by_hand)))
    near.seen.clear()
    pass_on(far.tell(WriterLively(key="w2", lively=False)) or [SetTimer(name="tell Square", delay_us=0)])
    (made,) = near.of(MakeWriter)
    assert Lively(entity=made.entity, lively=True) in near.seen, "one of the two is alive"
    assert only(pass_on(far.tell(WriterLively(key="w1", lively=False))), Lively).lively is False
    assert only(pass_on(far.tell(WriterLively(key="w2", lively=True))), Lively).lively is True


def test_what_nobody_wants_is_not_read() -> None:
    bench = Bench(wanted=False)
    bench.tell(EndpointFound(endpoint=writer("w1")))
    assert bench.asked == {"dds/Square"} and not bench.there and bench.mirror.idle == 1
    bench.tell(WantedTold(topic="dds/Square", wanted=True))
    assert len(bench.of(MakeReader)) == 1 and not bench.mirror.idle
    effects = bench.tell(WantedTold(topic="dds/Square", wanted=False))
    assert bench.there, "a subscriber that lost its broker is back soon"
    bench.tell(WantedTold(topic="dds/Square", wanted=True))
    bench.fire(effects)
    assert bench.there
    bench.fire(bench.fire(bench.tell(WantedTold(topic="dds/Square", wanted=False))))
    assert not bench.there
    bench.fire(bench.tell(EndpointGone(key="w1")))
    assert not bench.asked


def test_a_bridge_says_that_it_is_there_and_which_writers_are() -> None:
    bench = Bench("far")
    here = only(bench.tell(Connected()), Publish).publication
    assert here.topic == "dds/$bridges/far" and b'"up":true' in here.payload and here.retain
    first = bench.tell(EndpointFound(endpoint=writer("w1", KEPT)))
    second = bench.tell(EndpointFound(endpoint=writer("w2", KEPT)))
    told = only(bench.fire(first + second), Publish).publication
    read = msgspec.json.decode(told.payload, type=Announcement)
    assert [each.key for each in read.writers] == ["w1", "w2"] and read.writers[0].quality == KEPT
    gone = bench.tell(EndpointGone(key="w1"), EndpointGone(key="w2"))
    assert only(bench.fire(gone), Publish).publication.payload == b""
    bench.fire(bench.tell(EndpointFound(endpoint=writer("w3"))))
    last = [each.publication for each in bench.mirror.stop() if isinstance(each, Publish)]
    assert [(each.topic, each.payload[:1]) for each in last] == [
        ("dds/$writers/far/Square", b""),
        ("dds/$bridges/far", b"{"),
    ]


def test_what_others_say_in_its_name_is_put_right() -> None:
    bench = Bench()
    bench.tell(Connected())
    old = PRESENCE.write(Presence("near-0", False))
    assert b'"up":true' in only(bench.hear(Message("dds/$bridges/near", old, 1)), Publish).publication.payload
    stale = ANNOUNCEMENT.write(Announcement("near-0", (source(),)))
    withdrawn = only(bench.hear(Message("dds/$writers/near/Square", stale, 1, retain=True)), Publish)
    assert withdrawn.publication.payload == b""
    rival = PRESENCE.write(Presence("near-2", True))
    assert not [
        each for each in bench.hear(Message("dds/$bridges/near", rival, 1)) if isinstance(each, Publish)
    ]
    assert "give each a name of its own" in bench.mirror.problems["--name"]


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"\xff",
        b'{"v":2,"incarnation":"1","writers":[],"up":true}',
        ANNOUNCEMENT.write(Announcement("1", (source(),) * 501)),
        ANNOUNCEMENT.write(Announcement("1", (source(Quality(deadline_ns=-1)),))),
    ],
)
def test_announcements_that_are_none_cost_themselves_alone(payload: bytes) -> None:
    bench = Bench()
    bench.tell(EndpointFound(endpoint=reader("r1")))
    bench.hear(Message("dds/$bridges/far", PRESENCE.write(Presence("1", True)), 1))
    bench.hear(Message("dds/$writers/far/Square", payload, 1))
    assert bench.acknowledged[bench.token] == 1 and not bench.there and bench.mirror.figures.refused == 1


def test_late_readers_get_what_was_kept_and_nothing_twice() -> None:
    bench, far = Bench(), Bench("far")
    kept = msgspec.structs.replace(KEPT, strength=3, partitions=("hall",))
    far.tell(EndpointFound(endpoint=writer("w" * 32, kept)))
    wanting = msgspec.structs.replace(KEPT, partitions=("", "hall"))
    bench.tell(EndpointFound(endpoint=reader("r1", wanting)))
    ask = only(bench.announce(source(kept)), Publish).publication
    asked = Message(ask.topic, b"", 1, user_properties=ask.user_properties)
    replay = only(far.hear(asked), Replay)
    assert (replay.to, replay.quality.partitions, replay.type_name) == ("near", ("hall",), "Shape")
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
    assert len(bench.writes()) == 2 and len(set(bench.writes().values())) == 1
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
    bench.announce(source())
    bench.tell(EndpointFound(endpoint=writer("w1")), EndpointFound(endpoint=reader("r1")))
    assert len(bench.there) == 2
    bench.fire(bench.tell(BridgeFound(key="p", name="a")))
    assert not bench.there and not bench.mirror.active
    bench.tell(EndpointFound(endpoint=writer("w2")))
    assert not bench.there
    bench.tell(BridgeGone(key="p"))
    assert len(bench.there) == 2 and bench.mirror.active


def test_readers_wait_while_the_network_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "OUT_MAX_BYTES", 2_000)
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
    bench.announce(source(Quality()))
    bench.tell(EndpointFound(endpoint=reader("r1", Quality())))
    for number in range(3):
        bench.hear(message(qos=0, time_ns=number))
    assert bench.mirror.figures.dropped == 1 and bench.acknowledged[bench.token] == 1


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


def test_nothing_is_remembered_of_topics_that_nobody_here_has() -> None:
    bench = Bench()
    for number in range(50):
        bench.hear(Message(f"dds/$told/near/X{number}", DATA, 1, user_properties=message().user_properties))
    assert not bench.mirror._known and bench.acknowledged[bench.token] == 1


def test_endpoints_beyond_the_bound_are_not_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENDPOINTS_MAX", 2)
    bench = Bench()
    bench.tell(*(EndpointFound(endpoint=writer(f"w{each}", topic=f"T{each}")) for each in range(3)))
    assert len(bench.there) == 2 and "endpoints" in bench.mirror.problems


endpoints = st.builds(
    Endpoint,
    key=st.sampled_from("abcdef"),
    writes=st.booleans(),
    topic=st.sampled_from(("One", "Two")),
    type_name=st.sampled_from(("T", "U")),
    quality=st.builds(Quality, reliable=st.booleans(), partitions=st.sampled_from(((), ("p",)))),
)
sources = st.lists(
    st.builds(
        Source,
        key=st.sampled_from("stuv"),
        type_name=st.sampled_from(("T", "U")),
        quality=st.builds(Quality, reliable=st.booleans(), partitions=st.sampled_from(((), ("p",)))),
    ),
    max_size=3,
    unique_by=lambda each: each.key,
)
announcements = st.tuples(
    st.sampled_from(("One", "Two")), st.sampled_from(("far", "farther")), sources, st.booleans()
)
steps = st.lists(
    st.one_of(
        announcements,
        st.tuples(st.sampled_from(("One", "Two")), st.booleans()),
        endpoints.map(lambda each: EndpointFound(endpoint=each)),
        st.sampled_from("abcdef").map(lambda key: EndpointGone(key=key)),
        st.just(BridgeFound(key="p", name="a")),
        st.just(BridgeGone(key="p")),
    ),
    max_size=30,
)


@settings(max_examples=300)
@given(steps, st.booleans(), st.booleans())
def test_what_there_is_follows_from_the_endpoints_and_not_from_their_order(
    told: list[Any], makes: bool, wanted: bool
) -> None:
    bench = Bench(makes=makes, wanted=wanted)
    known: dict[str, Endpoint] = {}
    bridges = set()
    said: dict[tuple[str, str], list[Source]] = {}
    up: dict[str, bool] = {}
    demand = {"One": wanted, "Two": wanted}
    for event in told:
        match event:
            case (topic, bridge, found, there):
                said[topic, bridge], up[bridge] = found, there
                bench.fire(bench.fire(bench.announce(*found, bridge=bridge, up=there, topic=topic)))
                continue
            case (topic, answer):
                if f"dds/{topic}" in bench.asked:
                    demand[topic] = answer
                    bench.fire(bench.fire(bench.tell(WantedTold(topic=f"dds/{topic}", wanted=answer))))
                continue
            case EndpointFound(endpoint=endpoint):
                known[endpoint.key] = endpoint
            case EndpointGone(key=key):
                known.pop(key, None)
            case BridgeFound(key=key):
                bridges.add(key)
            case BridgeGone(key=key):
                bridges.discard(key)
        asked = set(bench.asked)
        bench.fire(bench.fire(bench.tell(event)))
        for topic in asked ^ bench.asked:  # a question that is put anew has its first answer again
            demand[topic.removeprefix("dds/")] = wanted
    fresh = Bench(wanted=wanted)
    fresh.tell(*(BridgeFound(key=key, name="a") for key in bridges))
    for (topic, bridge), found in said.items():
        fresh.announce(*found, bridge=bridge, up=up[bridge], topic=topic)
    fresh.fire(fresh.tell(*(EndpointFound(endpoint=each) for each in known.values())))
    for topic, answer in demand.items():
        if f"dds/{topic}" in fresh.asked:
            fresh.fire(fresh.fire(fresh.tell(WantedTold(topic=f"dds/{topic}", wanted=answer))))

    def shape(one: Bench) -> set[tuple[object, ...]]:
        made = [each for each in one.there.values() if isinstance(each, MakeReader | MakeWriter)]
        return {(type(each), each.topic, each.type_name, each.quality) for each in made}

    assert shape(bench) == shape(fresh)
    assert bench.subscribed == fresh.subscribed and bench.asked == fresh.asked
    assert bench.mirror.problems == fresh.mirror.problems
