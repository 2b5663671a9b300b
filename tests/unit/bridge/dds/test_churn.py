"""The mirror under churn: endpoints, bridges and demand come and go while messages are on their way, in any order.

Invariants, whatever happens: a message is acknowledged once; a mirror writes a sample once, however often it is heard;
nothing is asked of an entity that is not there, or not made; and when all is quiet nothing is left waiting.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tocsin.bridge.dds.announced import ANNOUNCEMENT, PRESENCE, Announcement, Presence, Source
from tocsin.bridge.dds.mapping import Names, Sample, message_of
from tocsin.bridge.dds.mirror import Mirror
from tocsin.bridge.dds.quality import FOREVER, Durability, Quality
from tocsin.bridge.dds.signals import (
    Acknowledge,
    AskWanted,
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
    Note,
    Publish,
    Published,
    PublishFailed,
    StopAsking,
    Subscribe,
    Taken,
    Unsubscribe,
    WantedTold,
    Write,
    WriteFailed,
    Written,
)
from tocsin.client.message import Message
from tocsin.core.machine import Effect, Event, SetTimer, TimerFired

STEPS = 400
TOPICS = ("One", "Two")
QUALITIES = tuple(
    Quality(reliable, durability, exclusive, partitions=partitions)
    for reliable in (False, True)
    for durability in (Durability.VOLATILE, Durability.TRANSIENT_LOCAL)
    for exclusive in (False, True)
    for partitions in ((), ("p",))
)


class World:
    """A mirror, and a shell that does what it wants when chance has it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.mirror = Mirror("m", Names(), "1")
        self.there: dict[str, bool] = {}  # entities: whether they are made
        self.timers: dict[str, None] = {}
        self.waiting: list[list[Event]] = []  # the answers that each effect may have; one of them comes
        self.subscribed: set[str] = set()
        self.asked: set[str] = set()
        self.acknowledged: Counter[int] = Counter()
        self.written: Counter[tuple[str, tuple[str, int]]] = Counter()  # by entity and sample
        self.heard: dict[int, tuple[str, int]] = {}  # token → writer and number of its sample
        self.endpoints: list[str] = []
        self.number = 0
        for effect in self.mirror.start():
            self._do(effect)

    def tell(self, event: Event) -> None:
        for effect in self.mirror.handle(event, 0):
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case MakeReader(entity=entity) | MakeWriter(entity=entity):
                self.there.setdefault(entity, False)
                self.waiting.append([Made(entity=entity), MakeFailed(entity=entity, reason="not yet")])
            case Drop(entity=entity):
                del self.there[entity]
            case Write(token=token, entity=entity):
                assert self.there[entity], "written by a writer that is not made"
                if entity.startswith("mirror"):
                    self.written[entity, self.heard[token]] += 1
                    assert self.written[entity, self.heard[token]] == 1, "a mirror writes each sample once"
                self.waiting.append([Written(tokens=(token,)), WriteFailed(token=token, problem="full")])
            case Publish(token=token):
                self.waiting.append([Published(token=token), PublishFailed(token=token, reason="no")])
            case Acknowledge(token=token):
                self.acknowledged[token] += 1
            case Subscribe(topic=topic):
                assert topic not in self.subscribed
                self.subscribed.add(topic)
            case Unsubscribe(topic=topic):
                self.subscribed.remove(topic)
            case AskWanted(topic=topic):
                assert topic not in self.asked
                self.asked.add(topic)
            case StopAsking(topic=topic):
                self.asked.remove(topic)
            case SetTimer(name=name):
                self.timers[name] = None
            case Note(event=event):
                assert event != "a message is no sample", "this world says what the mirror can read"

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> None:
        act = self.chance.choice(
            (self.appear, self.vanish, self.announce, self.rival, self.demand, self.hear, self.hear, self.answer,
             self.answer, self.answer, self.fire, self.take)
        )  # fmt: skip
        act()

    def appear(self) -> None:
        self.number += 1
        key = self.chance.choice([*self.endpoints, f"e{self.number}"])
        quality, topic = self.chance.choice(QUALITIES), self.chance.choice(TOPICS)
        endpoint = Endpoint(key, self.chance.random() < 0.4, topic, self.chance.choice("TTTU"), quality)
        if key not in self.endpoints:
            self.endpoints.append(key)
        self.tell(EndpointFound(endpoint=endpoint))

    def vanish(self) -> None:
        if self.endpoints:
            key = self.chance.choice(sorted(self.endpoints))
            self.endpoints.remove(key)
            self.tell(EndpointGone(key=key))

    def announce(self) -> None:
        bridge, topic = self.chance.choice(("far", "further")), self.chance.choice(TOPICS)
        if self.chance.random() < 0.3:
            presence = Presence("1", self.chance.random() < 0.7)
            self._hear(Message(f"dds/$bridges/{bridge}", PRESENCE.write(presence), 1))
            return
        keys = self.chance.sample("stuv", self.chance.randrange(4))
        sources = tuple(
            Source(key, self.chance.choice("TTTU"), self.chance.choice(QUALITIES)) for key in keys
        )
        said = ANNOUNCEMENT.write(Announcement("1", sources)) if sources else b""
        self._hear(Message(f"dds/$writers/{bridge}/{topic}", said, 1))

    def rival(self) -> None:
        if self.chance.random() < 0.3:
            self.tell(BridgeFound(key="p", name="a") if self.chance.random() < 0.4 else BridgeGone(key="p"))

    def demand(self) -> None:
        if self.asked:
            topic = self.chance.choice(sorted(self.asked))
            self.tell(WantedTold(topic=topic, wanted=self.chance.random() < 0.7))

    def hear(self) -> None:
        """A message that is new, or one that came before: a late reader's, or a broker's second try."""
        writer, topic = self.chance.choice("stuvx"), self.chance.choice(TOPICS)
        number = self.number + self.chance.choice((0, 1, 1))
        self.number = number
        sample = Sample(b"\0\1\0\0" + number.to_bytes(4, "big"), number, writer)
        said = message_of(sample, f"dds/{topic}", "far", qos=self.chance.randrange(2), lifespan_ns=FOREVER)
        self._hear(Message(said.topic, said.payload, said.qos, user_properties=said.user_properties), writer)

    def _hear(self, message: Message, writer: str = "") -> None:
        token = len(self.heard) + 1
        self.heard[token] = (writer + message.topic, self.number)
        self.tell(Heard(token=token, message=message, now_ns=1))

    def answer(self) -> None:
        if self.waiting:
            answers = self.waiting.pop(self.chance.randrange(len(self.waiting)))
            self._answer(self.chance.choice([answers[0], answers[0], answers[-1]]))

    def _answer(self, event: Event) -> None:
        if isinstance(event, Made) and event.entity in self.there:
            self.there[event.entity] = True
        self.tell(event)

    def fire(self) -> None:
        if self.timers:
            name = self.chance.choice(list(self.timers))
            del self.timers[name]
            self.tell(TimerFired(name=name))

    def take(self) -> None:
        readers = sorted(each for each, made in self.there.items() if made and each.startswith("reader"))
        if readers and self.endpoints:
            writer = self.chance.choice(sorted(self.endpoints))
            sample = Sample(b"\0\1\0\0", self.number, writer)
            self.tell(Taken(entity=self.chance.choice(readers), samples=(sample,)))

    def settle(self) -> None:
        """Everything that is waited for happens."""
        for _ in range(1_000):
            if not self.waiting and not self.timers:
                return
            while self.waiting:
                self._answer(self.waiting.pop(0)[0])
            for name in list(self.timers):
                self.timers.pop(name, None)
                self.tell(TimerFired(name=name))
        raise AssertionError("it does not come to rest")


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_doubled_or_stuck_while_everything_changes(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    missing = [token for token in world.heard if world.acknowledged[token] != 1]
    assert not missing, "each message is acknowledged once"
    assert world.mirror.in_flight == 0
    assert all(world.there.values()), "every entity is made in the end"


def test_churn_finds_a_mirror_that_knows_no_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mirror, "_is_new", lambda *_: True)
    with pytest.raises(AssertionError, match="each sample once"):
        for seed in range(40):
            test_nothing_is_lost_doubled_or_stuck_while_everything_changes(seed)


def test_churn_finds_a_mirror_that_forgets_what_waits_for_a_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(self: Mirror, entity: str) -> list[Effect]:
        self._entities[entity].waiting.clear()
        effects: list[Effect] = drop(self, entity)
        return effects

    drop: Any = Mirror._drop
    monkeypatch.setattr(Mirror, "_drop", forgets)
    with pytest.raises(AssertionError, match="acknowledged once"):
        for seed in range(40):
            test_nothing_is_lost_doubled_or_stuck_while_everything_changes(seed)
