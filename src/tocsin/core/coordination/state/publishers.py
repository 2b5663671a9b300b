"""Publishing clients and their streams: which are there, and the metadata of each stream.

A stream is **present** while the session of a client that publishes on it lives (connected, or away within its
expiry), or while it is permanent. Its metadata outlive its presence by ``keep_s``.

Every stream **costs** bytes: its topic, its metadata, and its publishers. They count for the user who said
something of it last, or whose client published on it first; and for the network. Beyond either bound nothing is added.

Every method notes which streams it touched, with what they were before; ``touched`` hands these over. A stream's
metadata are never changed in place: a holder can compare them by identity. ``placed`` hands over at which brokers
streams came to be published, or are no more.

Cost: a command costs the streams that it names; the end of a client or of a broker costs the streams that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tocsin.core.deadlines import Deadlines
from tocsin.model.network import BrokerInfo
from tocsin.model.stream import KEYS_MAX, PERMANENT, SYSTEM_KEYS, Diff, Value, size_of, size_problem
from tocsin.wire.internal.commands import Limits

SECOND_US: Final = 1_000_000
# The bytes that a coordinator holds beside the texts of a stream, for each of its keys, and for each publisher,
# rounded. A process grows by 0.8 to 1.1 times what is counted (``bench.spending.connections``).
STREAM_BYTES: Final = 1_000
KEY_BYTES: Final = 200
PUBLISHER_BYTES: Final = 1_000

Keys = dict[str, Value]


class Client:
    """A client that publishes."""

    __slots__ = ("broker", "cluster", "epoch", "expiry_s", "topics", "until_us")

    def __init__(self, broker: str, cluster: str, expiry_s: int, epoch: int) -> None:
        self.broker = broker  # the broker that it is, or was last, connected to
        self.cluster = cluster  # of that broker
        self.expiry_s = expiry_s
        self.epoch = epoch  # of its newest connection
        self.until_us: int | None = None  # when its session ends; None: it is connected
        self.topics: dict[str, None] = {}


class Stream:
    """A topic and its metadata."""

    __slots__ = (
        "absent_us",
        "after",
        "cost",
        "keys",
        "metadata",
        "origin",
        "owner",
        "permanent",
        "publishers",
    )

    def __init__(self) -> None:
        self.owner = ""  # the user who is charged for it
        self.cost = 0  # as it is counted
        self.keys: Keys = {}  # what clients said
        self.origin: Keys = {}  # client, broker and cluster of the latest publisher; empty: there was none
        self.publishers: dict[str, None] = {}  # the latest last
        self.permanent = False
        self.after = 0  # position of the message log that comes before its end
        self.absent_us: int | None = None  # since when it is not present; None: it is
        self.metadata: Keys = {}  # all of it: a new object for every change


class PublisherDirectory:
    """The publishing clients of the network and their streams."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.streams: dict[str, Stream] = {}
        self._of_broker: dict[str, dict[str, None]] = {}  # broker → its clients, also those away from it
        self._ends = Deadlines()  # of clients that are away
        self._absent = Deadlines()  # since when streams are not present
        self._touched: dict[str, tuple[Keys | None, Stream | None]] = {}
        self._placed: list[tuple[str, str, int]] = []
        self.cost = 0  # of all streams
        self.cost_of_user: dict[str, int] = {}  # the same by owner; never 0

    def touched(self) -> dict[str, tuple[Keys | None, Stream | None]]:
        """Topics that were touched since the last call → the metadata before, None if it was not present; and the
        stream, if it was known."""
        touched, self._touched = self._touched, {}
        return touched

    def placed(self) -> list[tuple[str, str, int]]:
        """What came since the last call: a topic, a broker, and how many clients more publish on it there; 0: one that
        is elsewhere by now has perhaps published there."""
        placed, self._placed = self._placed, []
        return placed

    def present(self, topic: str) -> Keys | None:
        """The metadata of a stream that is present."""
        stream = self.streams.get(topic)
        return None if stream is None or stream.absent_us is not None else stream.metadata

    # ── commands ────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, client_id: str, info: BrokerInfo, expiry_s: int, epoch: int, now_us: int) -> bool:
        """A client publishes from this broker; False if that is over.

        A connection that is newer than the known one, and did not come ``back``, has a new session: the client's
        earlier streams end.
        """
        client = self.clients.get(client_id)
        if client is not None and epoch > client.epoch:
            self._end(client_id, client, 0, now_us)
            client = None
        if client is None:
            client = self.clients[client_id] = Client(info.id, info.cluster, expiry_s, epoch)
            self._of_broker.setdefault(info.id, {})[client_id] = None
        if epoch < client.epoch:
            return False
        self._move(client_id, client, info, expiry_s, epoch)
        return True

    def declare(
        self,
        topic: str,
        diff: Diff | None,
        client_id: str,
        after: int,
        now_us: int,
        limits: Limits,
        user: str | None = None,
    ) -> str | None:
        """Apply metadata of one stream, from a client that publishes on it or from nobody (""), of this user (None:
        unknown).

        Returns a problem if it is refused.
        """
        stream = self.streams.get(topic)
        if stream is None:
            if diff is None and not client_id:
                return None
            if len(self.streams) >= limits.streams_max and not self._make_room():
                return f"there are {limits.streams_max} streams already"
            stream = Stream()
            stream.absent_us = now_us
        keys = _merged(stream.keys, diff)
        if len(keys) > KEYS_MAX:
            return f"a stream has at most {KEYS_MAX} keys"
        most = limits.metadata_max_bytes
        if most and diff and (size := size_of(keys)) > most and size > size_of(stream.keys):
            return size_problem(size, most)
        known = topic in self.streams
        owner = stream.owner if user is None or (known and not diff) else user
        more = bool(client_id) and client_id not in stream.publishers
        cost = cost_of(topic, keys, len(stream.publishers) + more)
        problem = self._no_room(topic, stream, cost, owner, limits)
        if problem is not None:
            return problem
        self._touch(topic)
        self.streams[topic] = stream
        self._count(stream, cost, owner)
        stream.keys = keys
        stream.after = max(stream.after, after)
        stream.permanent = diff is not None and bool(diff.get(PERMANENT, stream.permanent))
        if client_id:
            if topic not in self.clients[client_id].topics:
                self._placed.append((topic, self.clients[client_id].broker, 1))
            self.clients[client_id].topics[topic] = None
            stream.publishers.pop(client_id, None)
            stream.publishers[client_id] = None
            stream.origin = _origin(client_id, self.clients[client_id])
        self._settle(topic, stream, now_us, cost)
        return None

    def away(self, client_id: str, broker: str, expiry_s: int, after: int, epoch: int, now_us: int) -> None:
        client = self._own(client_id, broker, epoch)
        if client is None:
            return
        client.expiry_s = expiry_s
        if not expiry_s:
            self._end(client_id, client, after, now_us)
            return
        self._note_after(client, after)
        self._leave(client_id, client, now_us)

    def back(self, client_id: str, info: BrokerInfo, expiry_s: int, epoch: int) -> None:
        client = self.clients.get(client_id)
        if client is not None and epoch >= client.epoch:
            self._move(client_id, client, info, expiry_s, epoch)

    def gone(self, client_id: str, broker: str, after: int, epoch: int, now_us: int) -> None:
        client = self._own(client_id, broker, epoch)
        if client is not None:
            self._end(client_id, client, after, now_us)

    def broker_gone(self, broker: str, now_us: int) -> None:
        """A broker's clients are without it: their sessions end, now or in time."""
        for client_id in sorted(self._of_broker.get(broker, ())):
            client = self.clients[client_id]
            if client.until_us is not None:
                continue
            if client.expiry_s:
                self._leave(client_id, client, now_us)
            else:
                self._end(client_id, client, 0, now_us)

    def described_at(self, broker: str) -> Iterator[tuple[str, Keys]]:
        """The streams with metadata that clients of a broker publish on."""
        topics = {
            topic for client in self._of_broker.get(broker, ()) for topic in self.clients[client].topics
        }
        for topic in sorted(topics):
            if self.streams[topic].keys:
                yield topic, self.streams[topic].keys

    def strayed(self, topic: str, broker: str) -> None:
        """A client publishes at a broker that it has left, as far as is known."""
        self._placed.append((topic, broker, 0))

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def next_due_us(self, limits: Limits) -> int | None:
        """When ``advance`` has something to do; None if nothing ends by itself."""
        ends, absent = self._ends.first(), self._absent.first()
        dues = [ends[0]] if ends else []
        if absent:
            dues.append(absent[0] + limits.keep_s * SECOND_US)
        return min(dues, default=None)

    def advance(self, now_us: int, limits: Limits) -> None:
        """End the sessions, and forget the streams, whose time has come."""
        while (ends := self._ends.first()) and ends[0] <= now_us:
            self._end(ends[1], self.clients[ends[1]], 0, now_us)
        while (absent := self._absent.first()) and absent[0] + limits.keep_s * SECOND_US <= now_us:
            self._forget(absent[1])

    def _no_room(self, topic: str, stream: Stream, cost: int, owner: str, limits: Limits) -> str | None:
        """Why a stream cannot cost so much. Absent streams are forgotten to make room, the oldest first."""
        most, each = limits.streams_max_bytes, limits.streams_user_bytes
        before = stream.cost if stream.owner == owner else 0
        if not most or cost <= before:
            return None
        if self.cost_of_user.get(owner, 0) - before + cost > each:
            return f"the streams of one user may take {each} bytes together"
        if self.cost - stream.cost + cost > most:
            self._absent.drop(topic)  # itself it is not forgotten
            while self.cost - stream.cost + cost > most and self._make_room():
                pass
            if topic in self.streams and stream.absent_us is not None:
                self._absent.set(topic, stream.absent_us)
            if self.cost - stream.cost + cost > most:
                return f"all streams may take {most} bytes together"
        return None

    def _count(self, stream: Stream, cost: int, owner: str) -> None:
        """Have a stream count for so much, for this user; 0: it is forgotten."""
        if cost == stream.cost and owner == stream.owner:
            return
        self.cost += cost - stream.cost
        for user, change in ((stream.owner, -stream.cost), (owner, cost)):
            left = self.cost_of_user.get(user, 0) + change
            if left:
                self.cost_of_user[user] = left
            else:
                self.cost_of_user.pop(user, None)
        stream.cost, stream.owner = cost, owner

    def _make_room(self) -> bool:
        """Forget the stream that is absent the longest; False if all are present."""
        absent = self._absent.first()
        if absent is None:
            return False
        self._forget(absent[1])
        return True

    def _forget(self, topic: str) -> None:
        stream = self.streams.pop(topic)
        self._count(stream, 0, stream.owner)
        self._absent.drop(topic)

    # ── parts of these ──────────────────────────────────────────────────────────────────────────────────────

    def _own(self, client_id: str, broker: str, epoch: int) -> Client | None:
        """The client, if it is still this broker's, or was after it was known to be elsewhere: what an earlier one says
        of it comes too late."""
        client = self.clients.get(client_id)
        if client is None or epoch < client.epoch:
            return None
        return client if client.broker == broker or epoch > client.epoch else None

    def _move(self, client_id: str, client: Client, info: BrokerInfo, expiry_s: int, epoch: int) -> None:
        client.expiry_s, client.epoch = expiry_s, epoch
        client.until_us = None
        self._ends.drop(client_id)
        if (client.broker, client.cluster) == (info.id, info.cluster):
            return
        if client.broker != info.id:
            self._forget_at(client.broker, client_id)
            self._of_broker.setdefault(info.id, {})[client_id] = None
            for topic in client.topics:
                self._placed += ((topic, info.id, 1), (topic, client.broker, -1))
        client.broker, client.cluster = info.id, info.cluster
        origin = _origin(client_id, client)
        for topic in client.topics:
            stream = self.streams[topic]
            self._touch(topic)
            if stream.origin.get("client") == client_id and stream.origin != origin:
                stream.origin = origin
                stream.metadata = _metadata(topic, stream)

    def _note_after(self, client: Client, after: int) -> None:
        for topic in client.topics:
            self.streams[topic].after = max(self.streams[topic].after, after)

    def _leave(self, client_id: str, client: Client, now_us: int) -> None:
        client.until_us = now_us + client.expiry_s * SECOND_US
        self._ends.set(client_id, client.until_us)

    def _end(self, client_id: str, client: Client, after: int, now_us: int) -> None:
        self._note_after(client, after)
        del self.clients[client_id]
        self._ends.drop(client_id)
        self._forget_at(client.broker, client_id)
        for topic in client.topics:
            stream = self.streams[topic]
            self._touch(topic)
            self._placed.append((topic, client.broker, -1))
            del stream.publishers[client_id]
            if stream.publishers and stream.origin.get("client") == client_id:
                latest = next(reversed(stream.publishers))
                stream.origin = _origin(latest, self.clients[latest])
            self._settle(topic, stream, now_us)

    def _forget_at(self, broker: str, client_id: str) -> None:
        clients = self._of_broker[broker]
        del clients[client_id]
        if not clients:
            del self._of_broker[broker]

    def _settle(self, topic: str, stream: Stream, now_us: int, cost: int | None = None) -> None:
        """Whether a stream is present, after something changed; ``cost``: what it counts as, if that is known."""
        stream.metadata = _metadata(topic, stream)
        if cost is None:
            cost = cost_of(topic, stream.keys, len(stream.publishers))
        self._count(stream, cost, stream.owner)
        if stream.publishers or stream.permanent:
            stream.absent_us = None
            self._absent.drop(topic)
        elif not stream.keys:
            self._forget(topic)
        elif stream.absent_us is None or stream.absent_us == now_us:
            stream.absent_us = now_us
            self._absent.set(topic, now_us)

    def _touch(self, topic: str) -> None:
        if topic not in self._touched:
            self._touched[topic] = self.present(topic), self.streams.get(topic)

    # ── restoring ───────────────────────────────────────────────────────────────────────────────────────────

    def restore_client(self, client_id: str, client: Client) -> None:
        self.clients[client_id] = client
        self._of_broker.setdefault(client.broker, {})[client_id] = None
        if client.until_us is not None:
            self._ends.set(client_id, client.until_us)

    def restore_stream(self, topic: str, stream: Stream) -> None:
        self.streams[topic] = stream
        stream.metadata = _metadata(topic, stream)
        self._count(stream, cost_of(topic, stream.keys, len(stream.publishers)), stream.owner)
        if stream.absent_us is not None:
            self._absent.set(topic, stream.absent_us)

    def restore_publishers(self, topic: str, publishers: Iterable[str]) -> None:
        """Further ones of a stream that was restored, the latest last."""
        stream = self.streams[topic]
        for client_id in publishers:
            self.clients[client_id].topics[topic] = None
            stream.publishers[client_id] = None
            self._placed.append((topic, self.clients[client_id].broker, 1))
        self._count(stream, cost_of(topic, stream.keys, len(stream.publishers)), stream.owner)

    def all_present(self) -> Iterator[tuple[str, Keys]]:
        for topic, stream in self.streams.items():
            if stream.absent_us is None:
                yield topic, stream.metadata


def _merged(keys: Keys, diff: Diff | None) -> Keys:
    if diff is None:
        return {}
    merged = dict(keys)
    for key, value in diff.items():
        if value is None:
            merged.pop(key, None)
        elif key not in SYSTEM_KEYS and key != PERMANENT:
            merged[key] = value
    return merged


def _origin(client_id: str, client: Client) -> Keys:
    return {"client": client_id, "broker": client.broker, "cluster": client.cluster}


def _metadata(topic: str, stream: Stream) -> Keys:
    return {**stream.keys, "topic": topic, **stream.origin}


def cost_of(topic: str, keys: Keys, publishers: int) -> int:
    """The bytes that a stream counts as. All replicas count so: it may never count otherwise."""
    said = size_of(keys) + KEY_BYTES * len(keys)
    return STREAM_BYTES + len(topic.encode()) + said + PUBLISHER_BYTES * publishers
