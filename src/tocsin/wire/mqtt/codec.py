"""Bytes to packets and back, for MQTT 5, 3.1.1 and 3.1 with one vocabulary: the packet classes of ``mqtt5``.

    decoder = Decoder(max_packet_bytes)                       one per connection; server side
    decoder = Decoder(max_packet_bytes, role="client", version=5)
    for item in decoder.feed(data):                           list[Packet | WireError]
        ...                                                   a WireError is always the last item, and final:
                                                              whatever is fed afterwards gives []
    decoder.feed_runs(data)                                   the same, with runs of plain publishes as PublishRun
    decoder.feed_runs(data, most)                             no more than so many items; while ``decoder.more``, feed
                                                              b"" (or later bytes) for the next ones
    decoder.version                                           None until CONNECT said it (server); then 4 or 5;
                                                              MQTT 3.1 is 4 as well: only its CONNECT and DUP differ
    decoder.max_packet_bytes                                  may be raised once the peer is known

    encode(packet, version) -> bytes                          Unencodable if the packet cannot be said in that version
    frames.publish_frame(topic, payload, version, *, retain=False) -> bytes            QoS 0, hot
    frames.forward_frame(packet, version, *, retain=False, subscription_ids=(), waited_s=0) -> bytes

A decoder frames, and the codec of the version reads the frame. A PUBLISH without properties, which is nearly all
of the traffic, is read here: two slices, a look-up of the topic, and the packet. In runs not even that: a chunk
of packets that begin as those of the last run did, and have their size, is a run as it is.

Invariants: a packet's type, flags and size are judged as soon as its first bytes say them, before a byte of its
body is kept; what is kept is less than one packet, so never more than ``max_packet_bytes``, beside what ``most`` left;
how the bytes were cut into chunks never changes what comes out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, cast, final

import msgspec
from mqtt5 import Packet, PublishPacket

from tocsin.errors import Malformed, PacketTooLarge, ProtocolViolation, Unencodable, WireError
from tocsin.wire.mqtt import mqtt50, mqtt311
from tocsin.wire.mqtt.connect import V5, V31, V311, Level, Version, level_of, version_of
from tocsin.wire.mqtt.fields import text_of
from tocsin.wire.mqtt.mqtt311 import QOS
from tocsin.wire.mqtt.topics import check_topic

Role = Literal["server", "client"]

_MEMO_MAX = 4_096  # topics remembered by their bytes: they repeat, message after message
_MEMO_TOPIC_MAX_BYTES = 256  # of one of them; so the memo takes 2 MB at most

FILTERS_MAX: Final = 1_000  # of one SUBSCRIBE or UNSUBSCRIBE: a bound on the time that a hostile one costs
_MANY_FILTERS_BYTES: Final = 2_000  # no shorter packet has more
_SUBSCRIBE: Final = 0x82
_UNSUBSCRIBE: Final = 0xA2

_ALL: Final = 1 << 40  # items at once: however many there are

_TWO_BYTES_MAX = (1 << 14) - 1  # the longest remaining length that two bytes can say

_NAMES: Final = (
    "reserved packet type 0", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP",
    "SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
)  # fmt: skip
_ACCEPTED: Final[dict[tuple[Role, Level | None], tuple[int, ...]]] = {
    ("server", None): (1,),
    ("server", V31): (1, 3, 4, 5, 6, 7, 8, 10, 12, 14),
    ("server", V311): (1, 3, 4, 5, 6, 7, 8, 10, 12, 14),
    ("server", V5): (1, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15),
    ("client", V311): (2, 3, 4, 5, 6, 7, 9, 11, 13),
    ("client", V5): (2, 3, 4, 5, 6, 7, 9, 11, 13, 14, 15),
}


# Which flags a PUBLISH may have: DUP, two bits of QoS, RETAIN; not QoS 3, and no DUP at QoS 0.
_PUBLISH_FLAGS: Final = bytes(flags & 0x06 != 0x06 and flags & 0x0E != 0x08 for flags in range(16))


def _first_bytes(level: Level | None, accepted: tuple[int, ...]) -> bytes:
    """A table of 256: 1 for each first byte that is legal, its flags included.

    MQTT 3.1 ignores the flags of a CONNECT, so that they are judged when its level is known; and it repeats PUBREL,
    SUBSCRIBE and UNSUBSCRIBE with DUP.
    """
    legal = bytearray(256)
    for kind in accepted:
        if kind == 3:
            legal[0x30:0x40] = _PUBLISH_FLAGS
        elif kind == 1 and level is None:
            legal[0x10:0x20] = b"\1" * 16
        else:
            legal[kind << 4 | (0x02 if kind in (6, 8, 10) else 0)] = 1
            if level == V31 and kind in (6, 8, 10):
                legal[kind << 4 | 0x0A] = 1
    return bytes(legal)


_LEGAL: Final = {key: _first_bytes(key[1], accepted) for key, accepted in _ACCEPTED.items()}

_topics: dict[bytes, str] = {}

# The first bytes of a run's packets, their size, topic and version; no chunk is a multiple of that of none.
_Shape = tuple[bytes, int, str, Version]
_NONE: Final[_Shape] = (b"", 1 << 40, "", V5)


@lru_cache(64)  # one for each version and limit: connections share them
def _hot(version: Version | None, max_packet_bytes: int) -> tuple[int, int, int]:
    """For the hot loop: the type of PUBLISH, the bytes of no properties, the longest body."""
    publish = -1 if version is None else 0x30
    return publish, 1 if version == V5 else 0, min(_TWO_BYTES_MAX, max_packet_bytes - 3)


@final
class PublishRun(msgspec.Struct, frozen=True, gc=False):
    """PUBLISH packets of one topic that came one behind the other: QoS 0, no flags, no properties; their bytes.

    They are what subscribers of the same version get, so that nothing has to be made of them.
    """

    topic: str
    frames: bytes
    count: int
    version: Version

    def packets(self) -> list[PublishPacket]:
        """The same, one by one."""
        decoder = Decoder(len(self.frames), version=self.version)
        return [packet for packet in decoder.feed(self.frames) if isinstance(packet, PublishPacket)]

    def parted(self, count: int) -> tuple[PublishRun, PublishRun]:
        """The first so many of its packets, which has more, and the others."""
        frames, at = self.frames, 0
        for _ in range(count):
            length = frames[at + 1]
            at += 2 + length if length < 0x80 else 3 + length - 0x80 + (frames[at + 2] << 7)
        first = PublishRun(self.topic, frames[:at], count, self.version)
        return first, PublishRun(self.topic, frames[at:], self.count - count, self.version)


class Decoder:
    """Decodes the bytes of one connection into packets."""

    __slots__ = (
        "_bridges",
        "_failed",
        "_held",
        "_hot",
        "_last",
        "_legal",
        "_level",
        "_max_packet_bytes",
        "_needed",
        "_rest",
        "_rest_at",
        "_role",
        "_version",
        "keeps",
    )

    def __init__(
        self, max_packet_bytes: int, *, role: Role = "server", version: Version | None = None
    ) -> None:
        if role == "client" and version is None:
            raise ValueError("a client's decoder needs the version that the client speaks")
        self._max_packet_bytes = max_packet_bytes
        self._role: Role = role
        self._bridges = False  # the client is a bridge, by its CONNECT
        self._speak(version)
        self._held = bytearray()  # the beginning of an incomplete packet
        self._rest = b""  # what came and was not looked at, from the next index on
        self._rest_at = 0
        self._needed = 0  # how many bytes must be held before it is worth looking again
        self._failed = False
        self.keeps = False  # something: of an unfinished packet, or not looked at

    def _speak(self, level: Level | None) -> None:
        self._level = level
        self._version = version_of(level)
        self._legal = _LEGAL[self._role, level]
        self._hot = _hot(self._version, self._max_packet_bytes)
        self._last = _NONE  # what the last run of a chunk of its own was like

    @property
    def version(self) -> Version | None:
        return self._version

    @property
    def max_packet_bytes(self) -> int:
        return self._max_packet_bytes

    @max_packet_bytes.setter
    def max_packet_bytes(self, most: int) -> None:
        self._max_packet_bytes = most
        self._speak(self._level)

    @property
    def held_bytes(self) -> int:
        """How much is kept: of an unfinished packet, and of what was not looked at."""
        return len(self._held) + len(self._rest)

    @property
    def more(self) -> bool:
        """Whether something came that was not looked at."""
        return self._rest != b""

    def put(self, data: bytes) -> None:
        """Keep this until the next ``feed``."""
        if not self._failed:
            self.keeps = True
            self._rest, self._rest_at = self._rest[self._rest_at :] + data, 0

    def close(self) -> None:
        """Keep nothing, and give nothing any more: the holder of the decoder may live on for a while."""
        self._failed, self._last, self.keeps = True, _NONE, False
        self._held, self._rest = bytearray(), b""

    def feed(self, data: bytes, most: int = _ALL) -> list[Packet | WireError]:
        """The packets that these bytes complete; a ``WireError`` is the last item, and the decoder's last word."""
        return cast("list[Packet | WireError]", self._feed(data, runs=False, most=most))

    def feed_runs(self, data: bytes, most: int = _ALL) -> list[Packet | PublishRun | WireError]:
        """The same, with plain publishes of known topics as runs."""
        run = self.repeated(data)
        return self._feed(data, runs=True, most=most) if run is None else [run]

    def repeated(self, data: bytes) -> PublishRun | None:
        """A run, if these are only packets like those of the last run: nearly all clients send more of the same."""
        head, size, topic, version = self._last
        end = len(data)
        if end and end % size == 0 and not self.keeps and _alike(data, 0, end, head, size) == end:
            return PublishRun(topic, data, end // size, version)
        return None

    def _feed(self, data: bytes, *, runs: bool, most: int) -> list[Packet | PublishRun | WireError]:
        if self._failed:
            return []
        at = 0
        if self._rest:
            if data or self._held:
                data = self._rest[self._rest_at :] + data
            else:
                data, at = self._rest, self._rest_at
            self._rest = b""
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return []
            data = bytes(self._held)
            self._held = bytearray()
        items: list[Packet | PublishRun | WireError] = []
        try:
            rest = self._read(data, at, items, runs, most)
        except WireError as error:
            self._failed, self._last, self.keeps = True, _NONE, False
            # Its frames have the bytes, and the list of items: a circle, which only the collector would find.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            items.append(error)
        else:
            self.keeps = rest < len(data)
            if rest < len(data) and len(items) >= most:
                self._rest, self._rest_at = data, rest
            elif rest < len(data):
                self._held += memoryview(data)[rest:]
        return items

    def _read(
        self, data: bytes, at: int, items: list[Packet | PublishRun | WireError], runs: bool, most: int
    ) -> int:
        """Append every whole packet to ``items``, up to so many; where the next one begins. The hot loop."""
        end = len(data)
        last, append, known = end - 1, items.append, _topics
        publish, v5, short = self._hot
        for _ in range(most):
            if at >= last:
                break
            first = data[at]
            if first & 0xF0 == publish and at + 5 < end:
                length, body = data[at + 1], at + 2
                if length > 0x7F:
                    length, body = length - 0x80 + (data[body] << 7), at + 3
                    if length < 0x80:
                        length = short + 1
                stop = body + length
                if length <= short and stop <= end:
                    if first == 0x30:
                        # QoS 0 and no flags: if the topic is known, nothing is left to check.
                        middle = body + 2 + data[body + 1]
                        start = middle + v5
                        if start <= stop and not (v5 and data[middle]):
                            topic = known.get(data[body:middle])
                            if topic is not None:
                                if runs:
                                    run = self._run(data, at, start, stop, topic)
                                    append(run)
                                    at += len(run.frames)
                                else:
                                    append(PublishPacket(topic, data[start:stop]))
                                    at = stop
                                continue
                    packet = _plain_publish(data, first, body, stop, v5)
                    if packet is not None:
                        append(packet)
                        at = stop
                        continue
            body, stop = self._frame(data, at, end)
            if stop > end:
                self._needed = stop - at
                return at
            append(self._packet(data[at:stop], body - at))
            at = stop
            publish, v5, short = self._hot
        if at == last and not self._legal[data[at]]:
            raise self._unexpected(data[at])
        self._needed = 2
        return at

    def _run(self, data: bytes, at: int, start: int, stop: int, topic: str) -> PublishRun:
        """A run whose first packet is from ``at`` to ``stop``, with its payload from ``start`` on.

        It goes on with packets of the same first byte, topic and properties (none). Nearly always they have the same
        length as well: then they begin with the same bytes, and one comparison says all.
        """
        version: Version = V5 if self._version == V5 else V311
        end, size, head = len(data), stop - at, data[at:start]
        if at == 0:
            self._last = (head, size, topic, version)
        stop = _alike(data, stop, end, head, size)
        count = (stop - at) // size
        if stop < end - 2 and data[stop] == 0x30:
            stop, more = _uneven(data, stop, end, head[2 if head[1] < 0x80 else 3 :], self._hot[2])
            count += more
        return PublishRun(topic, data[at:stop], count, version)

    def _frame(self, data: bytes, at: int, end: int) -> tuple[int, int]:
        """Where the body begins and ends of the packet at ``at``, of which two bytes are there."""
        if not self._legal[data[at]]:
            raise self._unexpected(data[at])
        length, body = data[at + 1], at + 2
        if length > 0x7F:
            length, body = _long_length(data, at, end)
        if body + length - at > self._max_packet_bytes:
            raise PacketTooLarge(body + length - at, self._max_packet_bytes)
        return body, body + length

    def _packet(self, frame: bytes, at: int) -> Packet:
        """One frame, by the codec of the version."""
        if self._level is None:
            level, self._bridges = level_of(frame, at)
            self._speak(level)
            if not self._legal[frame[0]] and level != V31:
                raise self._unexpected(frame[0])
        if len(frame) > _MANY_FILTERS_BYTES and frame[0] in (_SUBSCRIBE, _UNSUBSCRIBE):
            _check_filters(frame, at, properties=self._version == V5)
        if self._version == V311:
            if self._bridges and frame[0] >> 4 == _SUBSCRIBE >> 4:
                return mqtt311.bridge_subscribe(frame, at)
            return mqtt311.decode(frame, at)
        packet = mqtt50.decode(frame, at)
        if self._role == "server" and isinstance(packet, PublishPacket) and packet.subscription_ids:
            raise ProtocolViolation("a client must not put subscription identifiers into a PUBLISH")
        return packet

    def _unexpected(self, first: int) -> WireError:
        kind = first >> 4
        name = _NAMES[kind]
        if kind in _ACCEPTED[self._role, self._level]:
            return Malformed(f"the flags of a {name} are {first & 0x0F:#x}, which is not allowed")
        if self._version is None and kind:
            return ProtocolViolation(f"the first packet must be CONNECT, not {name}")
        if kind == 0 or (kind == 15 and self._version == V311):
            return Malformed(f"packet type {kind} is reserved")
        return ProtocolViolation(f"a {self._role} does not receive {name}")


def _check_filters(frame: bytes, at: int, *, properties: bool) -> None:
    """Refuse a SUBSCRIBE or UNSUBSCRIBE of too many filters before they are read. Malformed packets are read later."""
    at += 2  # the packet id
    if properties:
        length, shift = 0, 0
        while at < len(frame) and shift < 28:
            byte, at = frame[at], at + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += length
    options = 1 if frame[0] == _SUBSCRIBE else 0
    count, last = 0, len(frame) - 1
    while at < last:
        at += 2 + (frame[at] << 8 | frame[at + 1]) + options
        count += 1
        if count > FILTERS_MAX:
            raise ProtocolViolation(f"a packet has more than {FILTERS_MAX} topic filters", 0x97)


def _long_length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A remaining length of two to four bytes, and where the body begins.

    If its bytes are not all here, the length is that of the smallest packet that they can begin: one byte
    more than there are is then what the loop waits for.
    """
    length = data[at + 1] & 0x7F
    for index in range(1, 4):
        position = at + 1 + index
        if position >= end:
            return 1, end
        byte = data[position]
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if byte == 0:
                raise Malformed("the remaining length is encoded in more bytes than it needs")
            return length, position + 1
    raise Malformed("the remaining length is longer than four bytes")


def _alike(data: bytes, at: int, end: int, head: bytes, size: int) -> int:
    """Where the packets end, from ``at`` on, that have this size and begin with these bytes."""
    last = end - size
    while at <= last and data.startswith(head, at):
        at += size
    return at


def _uneven(data: bytes, at: int, end: int, topic: bytes, longest: int) -> tuple[int, int]:
    """Where a run ends that goes on at ``at``, whatever its packets' lengths; and how many those are. ``topic`` is what
    their bodies begin with."""
    count, least, last = 0, len(topic), end - 2
    while at < last and data[at] == 0x30:
        length, body = data[at + 1], at + 2
        if length > 0x7F:
            length, body = length - 0x80 + (data[body] << 7), at + 3
            if length < 0x80:
                break
        if length < least or length > longest or body + length > end or not data.startswith(topic, body):
            break
        at = body + length
        count += 1
    return at, count


def _plain_publish(data: bytes, first: int, body: int, stop: int, v5: int) -> PublishPacket | None:
    """A PUBLISH that has no properties; None if it has some or is not right, so that the full codec says what."""
    if stop - body < 3:
        return None
    qos = first >> 1 & 3
    middle = body + 2 + (data[body] << 8 | data[body + 1])
    start = middle + v5 + (2 if qos else 0)
    if start > stop or middle == body + 2 or (v5 and data[start - 1]) or not _PUBLISH_FLAGS[first & 0x0F]:
        return None
    packet_id = data[middle] << 8 | data[middle + 1] if qos else None
    if packet_id == 0:
        return None
    topic = _topics.get(data[body:middle]) or _learn(data[body:middle])
    if not first & 0x09:  # naming the flags only where they are set is a tenth faster
        return PublishPacket(topic, data[start:stop], qos=QOS[qos], packet_id=packet_id)
    return PublishPacket(
        topic,
        data[start:stop],
        qos=QOS[qos],
        packet_id=packet_id,
        retain=first & 0x01 != 0,
        duplicate=first & 0x08 != 0,
    )


def _learn(field: bytes) -> str:
    """The topic of a string field, checked; remembered by the field's bytes, its length included, if it is short."""
    topic = text_of(field[2:], "the topic")
    check_topic(topic)
    if len(field) <= _MEMO_TOPIC_MAX_BYTES:
        if len(_topics) >= _MEMO_MAX:
            _topics.clear()
        _topics[field] = topic
    return topic


def encode(packet: Packet, version: Version) -> bytes:
    """The packet's bytes, or ``Unencodable`` if this version cannot say it."""
    try:
        return mqtt50.encode(packet) if version == V5 else mqtt311.encode(packet)
    except (ValueError, OverflowError) as error:
        name = type(packet).__name__.removesuffix("Packet").upper()
        raise Unencodable(name, version, str(error)) from None
