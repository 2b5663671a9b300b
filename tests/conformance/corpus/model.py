"""What a server makes of one packet of a client that is in: a deliberately simple reading of the standard.

    judge(level, raw) -> Answers | Fault       one whole packet, fixed header included
    judge_connect(raw) -> int | Fault          a CONNECT: the level at which the client is in

It shares no code with ``tocsin.wire``. Where MQTT 5 names the reason code, the model asks for that one; where it leaves
a choice (two faults in one packet, a fault that is no error of its own), ``Fault.codes`` has all that are right.
Levels are those of the wire: 3 is MQTT 3.1, 4 is 3.1.1, 5 is MQTT 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE = range(1, 9)
SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(9, 16)
WILL = 16  # its properties are a set of their own

MALFORMED, PROTOCOL_ERROR, ALIAS_INVALID, BAD_METHOD = 0x81, 0x82, 0x94, 0x8C
TOPIC_INVALID, FILTER_INVALID, NOT_FOUND, NO_SUBSCRIPTION = 0x90, 0x8F, 0x92, 0x11
ALIAS_MAX = 16  # the broker's default

# Property → what it holds, and where it may stand (table 2-4).
PROPERTIES: dict[int, tuple[str, frozenset[int]]] = {
    0x01: ("byte", frozenset({PUBLISH, WILL})),
    0x02: ("four", frozenset({PUBLISH, WILL})),
    0x03: ("text", frozenset({PUBLISH, WILL})),
    0x08: ("text", frozenset({PUBLISH, WILL})),
    0x09: ("data", frozenset({PUBLISH, WILL})),
    0x0B: ("varint", frozenset({PUBLISH, SUBSCRIBE})),
    0x11: ("four", frozenset({CONNECT, CONNACK, DISCONNECT})),
    0x12: ("text", frozenset({CONNACK})),
    0x13: ("two", frozenset({CONNACK})),
    0x15: ("text", frozenset({CONNECT, CONNACK, AUTH})),
    0x16: ("data", frozenset({CONNECT, CONNACK, AUTH})),
    0x17: ("byte", frozenset({CONNECT})),
    0x18: ("four", frozenset({WILL})),
    0x19: ("byte", frozenset({CONNECT})),
    0x1A: ("text", frozenset({CONNACK})),
    0x1C: ("text", frozenset({CONNACK, DISCONNECT})),
    0x1F: (
        "text",
        frozenset({CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH}),
    ),
    0x21: ("two", frozenset({CONNECT, CONNACK})),
    0x22: ("two", frozenset({CONNECT, CONNACK})),
    0x23: ("two", frozenset({PUBLISH})),
    0x24: ("byte", frozenset({CONNACK})),
    0x25: ("byte", frozenset({CONNACK})),
    0x26: ("pair", frozenset(range(1, 17)) - {PINGREQ, PINGRESP}),
    0x27: ("four", frozenset({CONNECT, CONNACK})),
    0x28: ("byte", frozenset({CONNACK})),
    0x29: ("byte", frozenset({CONNACK})),
    0x2A: ("byte", frozenset({CONNACK})),
}
REASONS: dict[int, frozenset[int]] = {
    PUBACK: frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}),
    PUBREC: frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}),
    PUBREL: frozenset({0x00, 0x92}),
    PUBCOMP: frozenset({0x00, 0x92}),
    # As a client may use them (3.14.2.1).
    DISCONNECT: frozenset(
        {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99}
    ),
}


class Fault(Exception):
    """The connection ends; MQTT 5 is told one of these codes."""

    def __init__(self, why: str, *codes: int) -> None:
        super().__init__(why)
        self.codes = frozenset(codes or (MALFORMED,))


class Refused(Fault):
    """A CONNECT that is answered with this code: MQTT 5's, or a return code of 3.1.1."""

    def __init__(self, why: str, level: int, *codes: int) -> None:
        super().__init__(why, *codes)
        self.level = level


@dataclass(frozen=True)
class Answers:
    """What a client gets for a packet that is right: (type, packet id, codes); and whether the connection ends."""

    packets: tuple[tuple[int, int, bytes], ...] = ()
    ends: bool = False


@dataclass
class Reader:
    """The body of one packet."""

    raw: bytes
    at: int = 0
    end: int = field(default=0)

    def __post_init__(self) -> None:
        self.end = self.end or len(self.raw)

    def take(self, count: int) -> bytes:
        if self.at + count > self.end:
            raise Fault("cut off")
        self.at += count
        return self.raw[self.at - count : self.at]

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def varint(self) -> int:
        value = 0
        for index in range(4):
            byte = self.number(1)
            value += (byte & 127) << 7 * index
            if byte < 128:
                if index and not byte:
                    raise Fault("more bytes than needed")
                return value
        raise Fault("five bytes")

    def data(self) -> bytes:
        return self.take(self.number(2))

    def text(self) -> str:
        try:
            found = self.data().decode("utf-8")
        except UnicodeDecodeError:
            raise Fault("not UTF-8") from None
        if "\0" in found:
            raise Fault("U+0000")
        return found

    def done(self) -> bool:
        return self.at == self.end


def properties(reader: Reader, where: int) -> dict[int, list[object]]:
    """The properties of a packet of that type, from a client."""
    length = reader.varint()
    if reader.at + length > reader.end:
        raise Fault("properties are cut off")
    inner = Reader(reader.raw, reader.at, reader.at + length)
    reader.at += length
    found: dict[int, list[object]] = {}
    if not length:
        return found
    late: Fault | None = None  # of a property that can be read: a fault that cannot be read past comes first
    while not inner.done():
        key = inner.varint()
        if key not in PROPERTIES:
            raise Fault("no such property")
        kind, allowed = PROPERTIES[key]
        value: object
        if kind == "pair":
            value = (inner.text(), inner.text())
        elif kind == "text":
            value = inner.text()
        elif kind == "data":
            value = inner.data()
        elif kind == "varint":
            value = inner.varint()
        else:
            value = inner.number({"byte": 1, "two": 2, "four": 4}[kind])
        found.setdefault(key, []).append(value)
        late = late or property_fault(key, value, where, where in allowed, len(found[key]))
    if late is not None:
        raise late
    if 0x16 in found and 0x15 not in found:
        raise Fault("authentication data without a method", PROTOCOL_ERROR)
    return found


def property_fault(key: int, value: object, where: int, allowed: bool, count: int) -> Fault | None:
    if not allowed:
        return Fault("not in this packet", PROTOCOL_ERROR)
    if key == 0x0B and where == PUBLISH:
        return Fault("a client's PUBLISH has a subscription identifier", PROTOCOL_ERROR)
    if count > 1 and key != 0x26:
        return Fault("twice", PROTOCOL_ERROR)
    if key in (0x01, 0x17, 0x19) and value not in (0, 1):
        return Fault("0 or 1", PROTOCOL_ERROR)
    if key in (0x0B, 0x21, 0x27) and value == 0:
        return Fault("0", PROTOCOL_ERROR)
    if key == 0x23 and not 0 < int(str(value)) <= ALIAS_MAX:
        return Fault("topic alias", ALIAS_INVALID)
    if key == 0x08 and (not value or set("+#") & set(str(value))):
        return Fault("response topic", PROTOCOL_ERROR)
    return None


def judge(level: int, raw: bytes) -> Answers:
    """What becomes of this packet; ``Fault`` if it ends the connection."""
    kind, flags = raw[0] >> 4, raw[0] & 15
    head = Reader(raw, 1)
    length = head.varint()
    assert len(raw) == head.at + length, "one whole packet"
    if kind == 0 or (kind == AUTH and level < 5):
        raise Fault("reserved type")
    if kind in (CONNACK, SUBACK, UNSUBACK, PINGRESP):
        raise Fault("a server's packet", PROTOCOL_ERROR, *((MALFORMED,) if flags else ()))
    check_flags(level, kind, flags)
    reader = Reader(raw, head.at, len(raw))
    if head.at == len(raw):
        reader = Reader(b"")
    match kind:
        case 1:
            raise Fault("a second CONNECT", PROTOCOL_ERROR, MALFORMED)
        case 3:
            return publish(level, flags, reader)
        case 4 | 5 | 6 | 7:
            return acknowledgement(level, kind, reader)
        case 8:
            return subscribe(level, reader)
        case 10:
            return unsubscribe(level, reader)
        case 12:
            if not reader.done():
                raise Fault("PINGREQ has no body")
            return Answers(((PINGRESP, 0, b""),))
        case 14:
            return disconnect(level, reader)
    raise Fault("AUTH without extended authentication", PROTOCOL_ERROR, MALFORMED)


def judge_connect(raw: bytes) -> int:
    """The level at which a client is in with this CONNECT; ``Refused`` if it is told why not, ``Fault`` if the
    connection just ends (MQTT 3 is told of few faults only)."""
    head = Reader(raw, 1)
    head.varint()
    reader = Reader(raw, head.at, len(raw))
    name, number = reader.data(), reader.number(1)
    levels = {(b"MQTT", 5): 5, (b"MQTT", 4): 4, (b"MQIsdp", 3): 3}
    levels |= {(b"MQTT", 0x84): 4, (b"MQIsdp", 0x83): 3}  # bridges of mosquitto
    level = levels.get((name, number), 0)
    if level == 0:
        if name not in (b"MQTT", b"MQIsdp"):
            raise Fault("another protocol")
        if number & 0x7F < 5:
            raise Refused("an older version", 4, 1)
        raise Refused("a version to come", 5, 0x84)
    try:
        connect_body(level, raw[0] & 15, reader)
    except Refused:
        raise
    except Fault as fault:
        if level == 5:
            raise Refused(str(fault), 5, *fault.codes) from None
        raise
    return level


def connect_body(level: int, first_flags: int, reader: Reader) -> None:
    if first_flags and level != 3:
        raise Fault("flags")
    flags = reader.number(1)
    if flags & 1 or flags & 0x18 == 0x18 or (not flags & 4 and flags & 0x38):
        raise Fault("connect flags")
    if level < 5 and flags & 0xC0 == 0x40:
        raise Fault("a password without a user name")
    reader.number(2)
    own = properties(reader, CONNECT) if level == 5 else {}
    client_id = reader.text()
    if flags & 4:
        if level == 5:
            properties(reader, WILL)
        topic = reader.text()
        reader.data()
    if flags & 0x80 and not (level == 3 and reader.done()):
        reader.text()
    if flags & 0x40 and not (level == 3 and reader.done()):
        reader.data()
    if not reader.done():
        raise Fault("more than a packet")
    if flags & 4 and (not topic or set("+#") & set(topic)):
        raise Fault("not a topic name", TOPIC_INVALID, MALFORMED, PROTOCOL_ERROR)
    if 0x15 in own:
        raise Fault("extended authentication is not offered", BAD_METHOD)
    if not client_id and (level == 3 or (level == 4 and not flags & 2)):
        raise Refused("an empty client id", level, 2)


def check_flags(level: int, kind: int, flags: int) -> None:
    if kind == PUBLISH:
        if flags & 6 == 6 or flags & 14 == 8:
            raise Fault("QoS 3, or DUP at QoS 0")
        return
    right = 2 if kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE) else 0
    if flags != right and not (level == 3 and right == 2 and flags == 10):
        raise Fault("flags", *((MALFORMED, PROTOCOL_ERROR) if kind in (CONNECT, AUTH) else ()))


def packet_id(reader: Reader) -> int:
    number = reader.number(2)
    if not number:
        # A fault, and the standard does not say which; what follows may be broken as well.
        raise Fault("packet id 0", PROTOCOL_ERROR, MALFORMED)
    return number


def publish(level: int, flags: int, reader: Reader) -> Answers:
    topic = reader.text()
    qos = flags >> 1 & 3
    number = packet_id(reader) if qos else 0
    if level == 5:
        found = properties(reader, PUBLISH)
        if not topic and 0x23 not in found:
            raise Fault("neither topic nor alias", PROTOCOL_ERROR)
        if not topic:
            raise Fault("an alias that stands for nothing", PROTOCOL_ERROR)
    if set("+#") & set(topic) or not topic:
        raise Fault("not a topic name", TOPIC_INVALID, MALFORMED, PROTOCOL_ERROR)
    return Answers(((PUBACK if qos == 1 else PUBREC, number, b""),)) if qos else Answers()


def acknowledgement(level: int, kind: int, reader: Reader) -> Answers:
    number = packet_id(reader)
    reason = 0
    if level == 5 and not reader.done():
        reason = reader.number(1)
        known = reason in REASONS[kind]
        if not reader.done():
            properties(reader, kind)
        if not reader.done():
            raise Fault("more than a packet", MALFORMED, *(() if known else (PROTOCOL_ERROR,)))
        if not known:
            raise Fault("no such reason", PROTOCOL_ERROR)
    if not reader.done():
        raise Fault("more than a packet")
    unknown = bytes((NOT_FOUND,)) if level == 5 else b""
    if kind == PUBREC and reason < 0x80:
        return Answers(((PUBREL, number, unknown),))
    if kind == PUBREL:
        return Answers(((PUBCOMP, number, unknown),))
    return Answers()


def subscribe(level: int, reader: Reader) -> Answers:
    number = packet_id(reader)
    if level == 5:
        properties(reader, SUBSCRIBE)
    codes: list[int] = []
    late: Fault | None = None
    while not reader.done():
        pattern = reader.text()
        options = reader.number(1)
        if not pattern:
            late = late or Fault("an empty filter")
        shared = pattern.startswith("$share/")
        if options & (0xC0 if level == 5 else 0xFC):
            late = late or Fault("reserved bits", MALFORMED, *((PROTOCOL_ERROR,) if options & 3 == 3 else ()))
        if options & 3 == 3:
            late = late or Fault("QoS 3", PROTOCOL_ERROR, *((MALFORMED,) if level < 5 else ()))
        if level == 5 and options >> 4 & 3 == 3:
            late = late or Fault("retain handling 3", PROTOCOL_ERROR)
        if shared and options & 4:
            late = late or Fault("no local on a shared subscription", PROTOCOL_ERROR)
        codes.append(options & 3 if is_filter(pattern) else FILTER_INVALID if level == 5 else 0x80)
    if not codes:
        raise Fault("no filter", PROTOCOL_ERROR)
    if late is not None:
        raise late
    return Answers(((SUBACK, number, bytes(codes)),))


def unsubscribe(level: int, reader: Reader) -> Answers:
    number = packet_id(reader)
    if level == 5:
        properties(reader, UNSUBSCRIBE)
    patterns: list[str] = []
    while not reader.done():
        patterns.append(reader.text())
    if not patterns:
        raise Fault("no filter", PROTOCOL_ERROR)
    if "" in patterns:
        raise Fault("an empty filter")
    codes = bytes(NO_SUBSCRIPTION if is_filter(each) else FILTER_INVALID for each in patterns)
    return Answers(((UNSUBACK, number, codes if level == 5 else b""),))


def disconnect(level: int, reader: Reader) -> Answers:
    if level == 5 and not reader.done():
        reason = reader.number(1)
        found = {} if reader.done() else properties(reader, DISCONNECT)
        if not reader.done():
            raise Fault("more than a packet")
        if reason not in REASONS[DISCONNECT]:
            raise Fault("no such reason", PROTOCOL_ERROR)
        if any(found.get(0x11, ())):
            raise Fault("a session that was to end is to be kept", PROTOCOL_ERROR)
    if not reader.done():
        raise Fault("more than a packet")
    return Answers(ends=True)


def is_filter(pattern: str) -> bool:
    """Whether a filter can be granted (4.7)."""
    if pattern.startswith("$share/"):
        _, _, rest = pattern.partition("/")
        group, slash, pattern = rest.partition("/")
        if not group or not slash or not pattern or set("+#") & set(group):
            return False
    levels = pattern.split("/")
    for index, each in enumerate(levels):
        if "#" in each and (each != "#" or index + 1 < len(levels)):
            return False
        if "+" in each and each != "+":
            return False
    return bool(pattern)
