"""The messages at QoS 0 that a broker keeps of its publishers, where their streams offer durability.

Each client has a ring for each such topic (``core.quality.recalling``), which counts in its budget; without room its
oldest messages go. The ring of a publisher that has gone is kept while its session is, or, of a stream that offers
transient or more, for as long as the broker lives. Such rings take at most LEFT_BYTES; the one that was left first goes
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from tocsin.broker.client import Client
from tocsin.core.budgets.budget import Kind
from tocsin.core.quality.judging import OFFER, Judge, Verdict
from tocsin.core.quality.recalling import Ring
from tocsin.core.quality.stamps import STAMP, Stamp, stamp_text
from tocsin.core.quality.texts import request_of
from tocsin.model.publication import Publication, encode_publication
from tocsin.model.quality import EVERYTHING, Durability, Flow, Offer
from tocsin.runtime.machines.clock import now_us, wall_us
from tocsin.wire.internal.quality import Past
from tocsin.wire.mqtt.topics import matches

RING_BYTES: Final = 1 << 20
LEFT_BYTES: Final = 16 << 20  # of publishers that have gone
LEFT_RING_BYTES: Final = 1_000  # of a ring, beside its messages
ANSWER_BYTES: Final = 1 << 20  # of messages in the answer to one broker; beyond it the oldest are left out
MESSAGE_BYTES: Final = 500  # of a message that is kept, beside its payload and topic

Message = tuple[Publication, Stamp]


def lasts(offer: Offer) -> bool:
    """Whether messages at QoS 0 are kept."""
    return bool(offer.durability)


class _Kept:
    """The ring of one client on one topic."""

    __slots__ = ("charged", "client", "ends", "flow", "offered", "ring", "transient", "until_us")

    def __init__(self, flow: Flow, client: Client) -> None:
        self.flow = flow  # the newest
        self.client: Client | None = client  # None: it has gone
        self.ring: Ring[Message] = Ring()
        self.ends: dict[Flow, int] = {flow: 0}  # the last number of each flow that has messages here
        self.offered = ""
        self.transient = False  # it outlives its publisher's session
        self.charged = 0  # bytes to the client's account
        self.until_us: int | None = None  # how long it is kept without its client; None: for ever


class Rings:
    """The rings of one broker's publishers."""

    def __init__(self) -> None:
        self._rings: dict[str, dict[str, _Kept]] = {}  # by topic and client
        self._left: dict[tuple[str, str], None] = {}  # those whose clients have gone, in order
        self._left_bytes = 0
        self._judge = Judge()
        self.cut = 0  # messages that were left out of answers, for want of room

    def __len__(self) -> int:
        return sum(map(len, self._rings.values()))

    # ── publishers ──────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, flow: Flow, client: Client, offered: str, offer: Offer, last: int) -> None:
        """A flow is kept from now on, after this number; or its stream offers something else."""
        kept = self._rings.setdefault(flow.topic, {}).get(flow.client)
        if kept is None:
            kept = self._rings[flow.topic][flow.client] = _Kept(flow, client)
            kept.ends[flow] = last
        elif kept.flow != flow:
            self._pick_up(kept, flow, client)
            kept.ends[flow] = last
        kept.offered, kept.transient = offered, (offer.durability or 0) >= Durability.TRANSIENT
        kept.ring.offer(offer.history, offer.lifespan_us)
        self._settle(kept)

    def _pick_up(self, kept: _Kept, flow: Flow, client: Client) -> None:
        """A publisher has another connection here."""
        if kept.client is None:
            del self._left[flow.topic, flow.client]
            self._left_bytes -= kept.ring.bytes
        else:
            kept.client.account.give(Kind.OUTBOUND, kept.charged)
        kept.flow, kept.client, kept.charged = flow, client, 0
        if client.account.take(Kind.OUTBOUND, kept.ring.bytes) is None:
            kept.charged = kept.ring.bytes
        else:
            kept.ring.fit(0)
        has = {stamp.flow for _, stamp in kept.ring.last(now_us())}
        kept.ends = {each: number for each, number in kept.ends.items() if each in has}

    def add(self, publication: Publication, stamp: Stamp) -> None:
        """A message goes out."""
        kept = self._rings.get(publication.topic, {}).get(stamp.flow.client)
        if kept is None or kept.client is None or kept.flow != stamp.flow:
            return
        kept.ends[stamp.flow] = stamp.number
        size, most = MESSAGE_BYTES + len(publication.topic) + len(publication.payload), RING_BYTES
        if kept.client.account.take(Kind.OUTBOUND, size) is None:
            kept.charged += size
        else:
            most = kept.charged  # the oldest make room
        kept.ring.add((publication, stamp), size, now_us())
        kept.ring.fit(most)
        self._settle(kept)

    def _settle(self, kept: _Kept) -> None:
        """Give back the bytes of what is not kept any more."""
        if kept.client is not None and kept.charged > kept.ring.bytes:
            kept.client.account.give(Kind.OUTBOUND, kept.charged - kept.ring.bytes)
            kept.charged = kept.ring.bytes

    def end(self, flow: Flow, expiry_s: int | None) -> None:
        """Its publisher has gone, and its session is kept for so long; None: its stream lasts no longer."""
        kept = self._rings.get(flow.topic, {}).get(flow.client)
        if kept is None or kept.flow != flow or kept.client is None:
            return
        kept.client.account.give(Kind.OUTBOUND, kept.charged)
        kept.client, kept.charged = None, 0
        kept.until_us = None if kept.transient else now_us() + (expiry_s or 0) * 1_000_000
        self._left[flow.topic, flow.client] = None
        self._left_bytes += kept.ring.bytes
        if expiry_s is None or not len(kept.ring) or (not kept.transient and not expiry_s):
            self._forget(flow.topic, flow.client)
        while self._left_bytes + LEFT_RING_BYTES * len(self._left) > LEFT_BYTES:
            self._forget(*next(iter(self._left)))

    def session_over(self, client: str) -> None:
        """A client's session is no more."""
        for topic, of_client in [each for each in self._left if each[1] == client]:
            if not self._rings[topic][of_client].transient:
                self._forget(topic, of_client)

    def _forget(self, topic: str, client: str) -> None:
        """Of a publisher that has gone."""
        del self._left[topic, client]
        of_topic = self._rings[topic]
        self._left_bytes -= of_topic.pop(client).ring.bytes
        if not of_topic:
            del self._rings[topic]

    # ── subscribers ─────────────────────────────────────────────────────────────────────────────────────────

    def recall(self, pattern: str, request: str) -> list[Past]:
        """What a new subscription gets."""
        now, found = now_us(), []
        for kept in tuple(self._matching(pattern)):
            if kept.until_us is not None and kept.until_us <= now and kept.client is None:
                self._forget(kept.flow.topic, kept.flow.client)
                continue
            found.append((kept, *self._wanted(kept, request, now)))
        return self._within(found)

    def _matching(self, pattern: str) -> Iterator[_Kept]:
        if "+" not in pattern and "#" not in pattern:
            yield from self._rings.get(pattern, {}).values()
            return
        for topic, of_topic in self._rings.items():
            if matches(pattern, topic):
                yield from of_topic.values()

    def _wanted(self, kept: _Kept, request: str, now: int) -> tuple[list[Message], int]:
        """The last messages that meet a request, and how many more were asked for than there was room for."""
        before = kept.ring.bytes
        found = [each for each in kept.ring.last(now) if self._fits(request, kept.offered, each[0], each[1])]
        if kept.client is None:
            self._left_bytes -= before - kept.ring.bytes
        self._settle(kept)
        depth = request_of(request).history
        if depth == EVERYTHING:
            return found, kept.ring.missing(now)
        depth = 1 if depth is None else depth
        return found[-depth:], min(kept.ring.missing(now), max(0, depth - len(found)))

    def _fits(self, request: str, offered: str, publication: Publication, stamp: Stamp) -> bool:
        if publication.expired((wall_us() - stamp.sent_us) / 1e6):
            return False
        return self._judge.judge(request, offered, publication.payload, 0) is Verdict.DELIVER

    def _within(self, found: Sequence[tuple[_Kept, list[Message], int]]) -> list[Past]:
        """As much as one answer may have; what is left out is the oldest."""
        rows = [
            (kept, [_encoded(kept, each) for each in messages], missing) for kept, messages, missing in found
        ]
        size = sum(len(data) for _, messages, _ in rows for _, data in messages)
        if size > ANSWER_BYTES:
            every = sorted(
                (sent_us, row, len(data))
                for row, (_, messages, _) in enumerate(rows)
                for sent_us, data in messages
            )
            out = dict.fromkeys(range(len(rows)), 0)
            for _, row, each in every:
                if size <= ANSWER_BYTES:
                    break
                size -= each
                out[row] += 1
            rows = [
                (kept, messages[out[row] :], missing + out[row])
                for row, (kept, messages, missing) in enumerate(rows)
            ]
        self.cut += sum(missing for _, _, missing in rows)
        return [
            Past(tuple(kept.ends.items()), tuple(data for _, data in messages), missing)
            for kept, messages, missing in rows
        ]


def _encoded(kept: _Kept, message: Message) -> tuple[int, bytes]:
    """A message with when it was published; it says itself what its stream offers."""
    publication, stamp = message
    said = (*publication.user_properties, (STAMP, stamp_text(stamp)))
    return stamp.sent_us, encode_publication(
        replace(publication, user_properties=said, keys={OFFER: kept.offered})
    )
