"""An AMQP 1.0 peer that a test plays, frame by frame."""

from __future__ import annotations

from typing import Any

from tocsin.bridge.peer import Login, Opened, Peer, PeerEvent
from tocsin.wire.amqp.frames import PLAIN_HEADER, SASL, SASL_HEADER, Frame, Reader, frame
from tocsin.wire.amqp.performatives import (
    Attach,
    Begin,
    Composite,
    Flow,
    Open,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
)
from tocsin.wire.amqp.values import Symbol


class Played:
    """A connection whose other side is the test."""

    def __init__(
        self, login: Login | None = None, *, mechanisms: tuple[str, ...] = ("PLAIN", "ANONYMOUS")
    ) -> None:
        self.peer = Peer("here", "there.example.org", login or Login())
        self.now_us = 0
        self._reader = Reader(1 << 20)
        self._mechanisms = mechanisms
        self.sasl: list[Frame] = []

    def say(self, data: bytes) -> list[PeerEvent]:
        return list(self.peer.heard(data, self.now_us))

    def tell(self, said: Composite, payload: bytes = b"", channel: int = 0) -> list[PeerEvent]:
        return self.say(frame(said, payload, channel=channel))

    def frames(self) -> list[Frame]:
        """What the peer has sent since."""
        self._reader.feed(self.peer.take_output())
        found = []
        while (each := self._reader.frame()) is not None:
            found.append(each)
        return found

    def said(self) -> list[Composite]:
        return [each.performative for each in self.frames() if each.performative is not None]

    def log_in(self, code: int = 0) -> list[PeerEvent]:
        """Up to the outcome of the log-in."""
        assert self.peer.take_output() == SASL_HEADER
        offered = [Symbol(each) for each in self._mechanisms]
        events = self.say(SASL_HEADER + frame(SaslMechanisms(mechanisms=offered), kind=SASL))
        if events:
            return events
        self.sasl = self.frames()
        return self.say(frame(SaslOutcome(code=code), kind=SASL))

    def open(self, **how: Any) -> Played:
        """An open connection."""
        assert self.log_in() == []
        output = self.peer.take_output()
        assert output.startswith(PLAIN_HEADER)
        self._reader.feed(output.removeprefix(PLAIN_HEADER))
        events = self.say(PLAIN_HEADER + frame(Open(container_id="there", **how)))
        assert events == [Opened("there")]
        self.frames()
        return self

    def attach(
        self,
        link: str,
        *,
        receives: bool,
        window: int = 100,
        channel: int = 0,
        max_message_size: int | None = None,
    ) -> list[PeerEvent]:
        """A link, granted; on the same channel in both directions."""
        self.peer.attach(link, f"address of {link}", receives=receives, max_bytes=1_000)
        self.frames()
        begin = Begin(remote_channel=channel, next_outgoing_id=0, incoming_window=window, outgoing_window=100)
        assert self.tell(begin, channel=channel) == []
        self.frames()
        answer = Attach(
            name=link,
            handle=0,
            role=not receives,
            source=Source(address="x"),
            target=Target(address="y"),
            initial_delivery_count=0 if receives else None,
            max_message_size=max_message_size,
        )
        return self.tell(answer, channel=channel)

    def flow(self, *, window: int = 100, seen: int = 0, credit: int, count: int = 0) -> list[PeerEvent]:
        return self.tell(
            Flow(
                next_incoming_id=seen,
                incoming_window=window,
                next_outgoing_id=0,
                outgoing_window=100,
                handle=0,
                delivery_count=count,
                link_credit=credit,
            )
        )
