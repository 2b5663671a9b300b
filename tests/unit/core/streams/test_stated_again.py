"""Many clients state the same of a stream with each message: that is one change, and not one a message."""

from __future__ import annotations

from tocsin.core.streams.machine import ChangeNumbers, ClientStreams
from tocsin.core.streams.metadata import StreamMetadata
from tocsin.core.streams.signals import Cleared, DeclareStream, MessageTaken

LAMP = [("meta.kind", "lamp")]
NONE = [("meta.kind", "")]


class Stage:
    """One client's streams, and the broker's metadata as the registry keeps them."""

    def __init__(self) -> None:
        self.metadata = StreamMetadata()
        self.streams = ClientStreams(self.metadata, ChangeNumbers(), streams_max=10, metadata_max_bytes=999)
        self.declared: list[DeclareStream] = []

    def publish(self, said: list[tuple[str, str]]) -> None:
        self.metadata.published("a", None)
        diff = self.streams.read("a", said)
        self.take(MessageTaken(item=1, topic="a", diff=diff, size=1, commits=False))

    def take(self, event: MessageTaken | Cleared) -> None:
        for effect in self.streams.handle(event, 0):
            if isinstance(effect, DeclareStream):
                self.metadata.declared(effect.topic, effect.diff, effect.ticket)
                self.declared.append(effect)


def test_what_is_stated_with_each_message_is_declared_once() -> None:
    stage = Stage()
    for _ in range(20):
        stage.publish(LAMP)
    stage.take(Cleared(ticket=stage.declared[-1].ticket))
    for _ in range(20):
        stage.publish(LAMP)
    assert [each.diff for each in stage.declared] == [{"kind": "lamp"}]


def test_a_change_between_two_like_statements_counts() -> None:
    stage = Stage()
    for said in (LAMP, NONE, LAMP):
        stage.publish(said)
    for _ in range(3):
        stage.take(Cleared(ticket=stage.declared[-1].ticket))
    assert [each.diff for each in stage.declared] == [{"kind": "lamp"}, {"kind": None}, {"kind": "lamp"}]


def test_what_somebody_else_has_changed_is_stated_again() -> None:
    stage = Stage()
    stage.publish(LAMP)
    stage.take(Cleared(ticket=stage.declared[-1].ticket))
    stage.metadata.described({"a": {"kind": "door"}}, whole=False)
    stage.publish(LAMP)
    assert len(stage.declared) == 2
