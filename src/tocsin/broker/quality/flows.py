"""The flows of one broker's publishers: their messages at QoS 0 are stamped, where their streams offer what needs it.

Ownership needs to know who published a message, a latency budget when, and reliable delivery and history its number.
Streams that offer none of these are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from mqtt5 import PublishPacket
from msgspec.structs import replace

from tocsin.broker.client import Client
from tocsin.broker.quality.attention import Attended
from tocsin.broker.quality.resending import Origins
from tocsin.broker.quality.rings import Rings, lasts
from tocsin.core.budgets.budget import Kind
from tocsin.core.quality.judging import OFFER_PREFIX
from tocsin.core.quality.stamps import STAMP, Stamp, is_stamped, stamp_of, stamp_text, without_stamp
from tocsin.core.quality.texts import offer_said
from tocsin.model.publication import Publication
from tocsin.model.quality import Flow, Offer, Ownership, Reliability
from tocsin.runtime.machines.clock import wall_us

FLOW_BYTES: Final = 600
STRENGTHS_MAX: Final = 1_000  # of one client; the oldest is forgotten first
STRENGTH: Final = OFFER_PREFIX + "strength"


class _Numbered:
    """One flow, as its broker has it."""

    __slots__ = ("flow", "kept", "last")

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.last = 0  # number that was published
        self.kept = False  # until every destination has it


class Flows:
    """The flows of a broker's clients. ``origins`` keeps what is reliable, and ``rings`` what lasts."""

    def __init__(self, broker: str, origins: Origins, rings: Rings) -> None:
        self._origins = origins
        self._rings = rings
        self.topics = Attended()  # on which somebody here has a flow
        self.budgets: dict[str, int] = {}  # of them, those that offer a latency budget, with that
        self.budgeted: Callable[[], None] = lambda: None  # told when there are others
        self._broker = broker
        self._epoch = 0  # of the newest flow
        self._flows: dict[Client, dict[str, _Numbered]] = {}  # by topic
        self._strengths: dict[Client, dict[str, int]] = {}  # said by messages, by topic

    def __len__(self) -> int:
        return sum(map(len, self._flows.values()))

    def promise(self, topic: str, offered: str, publishers: Collection[Client]) -> None:
        """What the stream of a topic offers that these publish on; empty: nothing."""
        offer = offer_said(offered) if offered else None
        needed = offer is not None and _needs_stamps(offer)
        if not needed and topic not in self.topics:
            return
        budget_us = None if offer is None else offer.budget_us
        for client in publishers:
            if needed and offer is not None:
                self._begin(client, topic, offered, offer)
            else:
                self._end(client, topic, None)
        if budget_us is not None and topic in self.topics:
            self.budgets[topic] = budget_us
            self.budgeted()
        else:
            self.budgets.pop(topic, None)

    def _begin(self, client: Client, topic: str, offered: str, offer: Offer) -> None:
        found = self._flows.get(client, {}).get(topic) or self._new(client, topic)
        if found is None:
            return
        if not found.kept and (offer.reliability is Reliability.RELIABLE or lasts(offer)):
            found.kept = True
            self._origins.begin(found.flow, client, found.last)
        if lasts(offer):
            self._rings.begin(found.flow, client, offered, offer, found.last)
        else:
            self._rings.end(found.flow, None)

    def _new(self, client: Client, topic: str) -> _Numbered | None:
        """Without room its messages are not stamped."""
        if client.account.take(Kind.OUTBOUND, FLOW_BYTES + len(topic)) is not None:
            return None
        self._epoch = max(self._epoch + 1, wall_us())
        flow = Flow(topic, client.client_id, self._epoch, self._broker)
        found = self._flows.setdefault(client, {})[topic] = _Numbered(flow)
        self.topics.add(topic)
        return found

    def _end(self, client: Client, topic: str, expiry_s: int | None) -> None:
        """``expiry_s``: how long the session is kept; None: the stream needs no stamps any more."""
        flows = self._flows.get(client, {})
        ended = flows.pop(topic, None)
        if ended is None:
            return
        if ended.kept:
            self._origins.end(ended.flow)
        self._rings.end(ended.flow, expiry_s)
        if not flows:
            del self._flows[client]
        client.account.give(Kind.OUTBOUND, FLOW_BYTES + len(topic))
        self.topics.remove(topic)
        if topic not in self.topics:
            self.budgets.pop(topic, None)

    def forget(self, client: Client) -> None:
        """The connection is over, and so are its flows."""
        for topic in tuple(self._flows.get(client, ())):
            self._end(client, topic, client.expiry_s)
        self._strengths.pop(client, None)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def stamp(self, client: Client, topic: str) -> Stamp | None:
        """The stamp of the next message; None: it needs none."""
        found = self._flows.get(client, {}).get(topic)
        if found is None:
            return None
        found.last += 1
        return Stamp(found.flow, found.last, wall_us(), self.strength(client, topic), found.kept)

    def stated(self, client: Client, topic: str, properties: Sequence[tuple[str, str]]) -> None:
        """A message says something. If that is an offer, it says how strong its publisher is, or that it is not."""
        said = {key: value for key, value in properties if key.startswith(OFFER_PREFIX)}
        if not said:
            return
        strength = said.get(STRENGTH, "0")
        strengths = self._strengths.setdefault(client, {})
        strengths.pop(topic, None)
        strengths[topic] = int(strength) if strength.isdecimal() else 0  # what cannot be read was refused
        if len(strengths) > STRENGTHS_MAX:
            del strengths[next(iter(strengths))]

    def strength(self, client: Client, topic: str) -> int:
        """How strong a client's messages say that it is; 0: they say nothing."""
        return self._strengths.get(client, {}).get(topic, 0)


def _needs_stamps(offer: Offer) -> bool:
    reliable = offer.reliability is Reliability.RELIABLE
    return reliable or lasts(offer) or offer.ownership is Ownership.EXCLUSIVE or offer.budget_us is not None


def with_stamp(packet: PublishPacket, stamp: Stamp) -> PublishPacket:
    """The message as it goes over links."""
    made = Publication.of(packet, packet.topic, "")
    properties = (*made.user_properties, (STAMP, stamp_text(stamp)))
    return replace(made, user_properties=properties).packet(retain=packet.retain)


def unstamped(packet: PublishPacket, topic: str) -> tuple[PublishPacket, Stamp | None]:
    """The message as clients get it, and its stamp, if it has one."""
    said = packet.user_properties
    if not is_stamped(said):
        return packet, None
    made = replace(Publication.of(packet, topic, ""), user_properties=tuple(without_stamp(said)))
    return made.packet(retain=packet.retain), stamp_of(said, topic)
