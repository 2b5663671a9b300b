"""Packets of a client, built from their fields, and the ways in which one can be broken.

    FAMILIES[name]() -> cases            always the same: chance is drawn from a fixed seed
    CONNECTS[name]() -> cases            the same of CONNECT packets, with which a connection begins

A case is one packet that a client sends once it is in, or its CONNECT. What becomes of it is the affair of ``model``;
the grammar only sees to it that each is one whole packet, or says in ``fault`` what must happen where it cannot be.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.conformance.corpus import model
from tests.conformance.corpus.model import (
    DISCONNECT,
    PROPERTIES,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
)

LEVELS = (3, 4, 5)
SEED = 5  # of the family *chance*
BAD_TEXTS = (
    b"a\0b", b"\0", b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82",
    b"\xf0\x80\x80\x80",
)  # fmt: skip
GOOD_TEXTS = (b"a", b"a/b", b"\xef\xbb\xbfa", "Ä/ö €".encode(), "𝄞".encode(), b"a" * 200, b"/", b"a//b", b" ")
FILTERS = (
    "a", "a/b/c", "+", "#", "+/+", "a/#", "/", "//", "+/a/#", "a/+/b", "a#", "a/#/b", "#a", "+a", "a+", "a/b+",
    "a/+b/c", "$share/g/a", "$share/g/#", "$share/g", "$share//a", "$share/+/a", "$share/g/", "$share/#/a",
    "$share/g/a#", " ", "ä/+",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One packet. ``fault``: the codes with which it must end, where it is not a whole packet. ``codes``: those of its
    one answer, where the standard leaves them to the server."""

    name: str
    level: int
    raw: bytes
    fault: frozenset[int] | None = None
    codes: bytes | None = None


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, byte = value >> 7, value & 127
        out.append(byte | (128 if value else 0))
        if not value:
            return bytes(out)


def frame(first: int, body: bytes) -> bytes:
    return bytes((first,)) + varint(len(body)) + body


def text(raw: bytes) -> bytes:
    return len(raw).to_bytes(2, "big") + raw


def block(level: int, raw: bytes = b"") -> bytes:
    """Properties, where there are such."""
    return varint(len(raw)) + raw if level == 5 else b""


ID = b"\x04\xd2"
USER_PROPERTY = b"\x26" + text(b"key") + text(b"value")


def prop(key: int, value: bytes | None = None) -> bytes:
    """A property with a value that is right, or this one."""
    right = {"byte": b"\1", "two": b"\0\1", "four": b"\0\0\0\1", "text": text(b"x"), "data": text(b"\xff"),
             "varint": b"\1", "pair": text(b"k") + text(b"v")}  # fmt: skip
    if key == 0x27 and value is None:
        value = b"\0\1\0\0"  # as maximum packet size 1 would have the broker say nothing at all
    return bytes((key,)) + (right[PROPERTIES[key][0]] if value is None else value)


def samples(level: int) -> dict[str, bytes]:
    """A few packets of each type that are right."""
    found = {
        "PUBLISH 0": frame(0x30, text(b"t") + block(level) + b"payload"),
        "PUBLISH 0 retained, empty": frame(0x31, text(b"t/none") + block(level)),
        "PUBLISH 1": frame(0x32, text(b"t") + ID + block(level) + b"payload"),
        "PUBLISH 1 again": frame(0x3A, text(b"t") + ID + block(level) + b"payload"),
        "PUBLISH 2": frame(0x34, text(b"t/u") + ID + block(level) + b"payload"),
        "PUBLISH 2 again": frame(0x3C, text(b"t/u") + ID + block(level) + b"payload"),
        "PUBACK": frame(0x40, ID),
        "PUBREC": frame(0x50, ID),
        "PUBREL": frame(0x62, ID),
        "PUBCOMP": frame(0x70, ID),
        "SUBSCRIBE": frame(0x82, ID + block(level) + text(b"s") + b"\1"),
        "SUBSCRIBE two": frame(0x82, ID + block(level) + text(b"s/+") + b"\0" + text(b"u/#") + b"\2"),
        "UNSUBSCRIBE": frame(0xA2, ID + block(level) + text(b"s")),
        "UNSUBSCRIBE two": frame(0xA2, ID + block(level) + text(b"s/+") + text(b"u/#")),
        "PINGREQ": frame(0xC0, b""),
        "DISCONNECT": frame(0xE0, b""),
    }
    if level == 5:
        rich = prop(0x01) + prop(0x02) + prop(0x03) + prop(0x08) + prop(0x09) + USER_PROPERTY
        found |= {
            "PUBLISH 1 with properties": frame(0x32, text(b"t") + ID + block(5, rich) + b"payload"),
            "PUBLISH 0 with an alias": frame(0x30, text(b"t") + block(5, prop(0x23)) + b"payload"),
            "PUBACK with a reason": frame(0x40, ID + b"\x10"),
            "PUBREC with a reason": frame(0x50, ID + b"\x80"),
            "PUBREL with properties": frame(0x62, ID + b"\0" + block(5, prop(0x1F) + USER_PROPERTY)),
            "PUBCOMP with properties": frame(0x70, ID + b"\x92" + block(5, USER_PROPERTY * 2)),
            "SUBSCRIBE with properties": frame(
                0x82, ID + block(5, prop(0x0B) + USER_PROPERTY) + text(b"s") + b"\x2d"
            ),
            "UNSUBSCRIBE with properties": frame(0xA2, ID + block(5, USER_PROPERTY) + text(b"s")),
            "DISCONNECT with properties": frame(0xE0, b"\4" + block(5, prop(0x1F) + USER_PROPERTY)),
            "AUTH": frame(0xF0, b""),
        }
    return found


def body_of(raw: bytes) -> bytes:
    """What follows the fixed header."""
    at = 1
    while raw[at] & 128:
        at += 1
    return raw[at + 1 :]


# ── families ─────────────────────────────────────────────────────────────────────────────────────────────────


def right() -> Iterator[Case]:
    for level in LEVELS:
        for name, raw in samples(level).items():
            yield Case(name, level, raw)


def first_bytes() -> Iterator[Case]:
    """Every first byte, before a body that suits its type."""
    for level in LEVELS:
        bodies = {raw[0] >> 4: body_of(raw) for raw in reversed(samples(level).values())}
        for first in range(256):
            body = bodies.get(first >> 4, b"")
            if first >> 4 == PUBLISH:
                body = text(b"t") + (ID if first & 6 else b"") + block(level) + b"x"
            yield Case(f"{first:02x}", level, frame(first, body))


def lengths() -> Iterator[Case]:
    """Remaining lengths of five bytes, and of more bytes than they need, in every type of packet."""
    for level in LEVELS:
        for first in [*(kind << 4 for kind in range(16)), 0x32, 0x34, 0x62, 0x82, 0xA2]:
            for tail in (
                b"\xff\xff\xff\xff\x01",
                b"\x80\x80\x80\x80\x00",
                b"\xff\xff\xff\xff",
                b"\x80\x00",
                b"\x82\x80\x00",
            ):
                either = frozenset({model.MALFORMED, model.PROTOCOL_ERROR})
                yield Case(f"{first:02x} {tail.hex()}", level, bytes((first,)) + tail, either)


def cuts() -> Iterator[Case]:
    """Packets that end too soon, or too late."""
    for level in LEVELS:
        for name, raw in samples(level).items():
            body = body_of(raw)
            for end in range(len(body)):
                yield Case(f"{name} cut at {end}", level, frame(raw[0], body[:end]))
            for tail in (b"\0", b"\xff", b"\0\1a"):
                yield Case(f"{name} and {tail.hex()}", level, frame(raw[0], body + tail))


def property_places() -> Iterator[Case]:
    """Every property in every packet, once and twice; and numbers that are no property's."""
    bodies: dict[int, Callable[[bytes], bytes]] = {
        PUBLISH: lambda raw: frame(0x32, text(b"t") + ID + block(5, raw) + b"x"),
        PUBACK: lambda raw: frame(0x40, ID + b"\0" + block(5, raw)),
        PUBREC: lambda raw: frame(0x50, ID + b"\0" + block(5, raw)),
        PUBREL: lambda raw: frame(0x62, ID + b"\0" + block(5, raw)),
        PUBCOMP: lambda raw: frame(0x70, ID + b"\0" + block(5, raw)),
        SUBSCRIBE: lambda raw: frame(0x82, ID + block(5, raw) + text(b"s") + b"\0"),
        UNSUBSCRIBE: lambda raw: frame(0xA2, ID + block(5, raw) + text(b"s")),
        DISCONNECT: lambda raw: frame(0xE0, b"\0" + block(5, raw)),
    }
    for kind, make in bodies.items():
        for key in PROPERTIES:
            yield Case(f"{key:#04x} in {kind}", 5, make(prop(key)))
            yield Case(f"{key:#04x} twice in {kind}", 5, make(prop(key) * 2))
            yield Case(f"{key:#04x} cut in {kind}", 5, make(prop(key)[:-1]))
        for key in (0x00, 0x04, 0x0A, 0x0C, 0x14, 0x1B, 0x20, 0x2B, 0x7F):
            yield Case(f"no property {key:#04x} in {kind}", 5, make(bytes((key, 0, 0, 0, 0))))
    for key, value in (
        (0x01, b"\0"), (0x01, b"\2"), (0x01, b"\xff"), (0x02, b"\0\0\0\0"), (0x02, b"\xff\xff\xff\xff"),
        (0x23, b"\0\0"), (0x23, b"\0\x10"), (0x23, b"\0\x11"), (0x23, b"\xff\xff"), (0x08, text(b"")),
        (0x08, text(b"a/+")), (0x08, text(b"#")), (0x03, text(b"")), (0x09, text(b"")), (0x26, text(b"") + text(b"")),
    ):  # fmt: skip
        yield Case(f"{key:#04x} = {value.hex()}", 5, bodies[PUBLISH](prop(key, value)))
    for value in (b"\0", b"\1", b"\x7f", b"\x80\1", b"\x80\0", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\1"):
        yield Case(f"subscription identifier {value.hex()}", 5, bodies[SUBSCRIBE](prop(0x0B, value)))
    for value in (b"\0\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff"):
        yield Case(f"session expiry {value.hex()} when leaving", 5, bodies[DISCONNECT](prop(0x11, value)))


def texts() -> Iterator[Case]:
    """What is and is not text, wherever text stands."""
    for raw in (*BAD_TEXTS, *GOOD_TEXTS):
        for level in LEVELS:
            for name, packet in (
                ("topic", frame(0x30, text(raw) + block(level))),
                ("topic at QoS 1", frame(0x32, text(raw) + ID + block(level))),
                ("filter", frame(0x82, ID + block(level) + text(raw) + b"\0")),
                ("second filter", frame(0x82, ID + block(level) + text(b"a") + b"\0" + text(raw) + b"\0")),
                ("filter to leave", frame(0xA2, ID + block(level) + text(raw))),
            ):
                yield Case(f"{raw[:8].hex()} as {name}", level, packet)
        for key in (0x03, 0x08):
            packet = frame(0x30, text(b"t") + block(5, prop(key, text(raw))))
            yield Case(f"{raw[:8].hex()} as property {key:#04x}", 5, packet)
        for pair in (text(raw) + text(b"v"), text(b"k") + text(raw)):
            for packet in (
                frame(0x30, text(b"t") + block(5, prop(0x26, pair))),
                frame(0x82, ID + block(5, prop(0x26, pair)) + text(b"s") + b"\0"),
                frame(0xE0, b"\0" + block(5, prop(0x26, pair))),
            ):
                yield Case(f"{raw[:8].hex()} in a pair of {packet[0]:02x}", 5, packet)


def reasons() -> Iterator[Case]:
    """Every number as the reason of every acknowledgement, and of leaving."""
    for code in range(256):
        for first in (0x40, 0x50, 0x62, 0x70):
            yield Case(f"{first:02x} {code:#04x}", 5, frame(first, ID + bytes((code,))))
        yield Case(f"leaving {code:#04x}", 5, frame(0xE0, bytes((code,))))


def filters() -> Iterator[Case]:
    """Filters and options of a subscription."""
    for level in LEVELS:
        for pattern in FILTERS:
            raw = text(pattern.encode())
            yield Case(f"{pattern!r}", level, frame(0x82, ID + block(level) + raw + b"\1"))
            yield Case(f"without {pattern!r}", level, frame(0xA2, ID + block(level) + raw))
        for options in range(256):
            yield Case(
                f"options {options:02x}",
                level,
                frame(0x82, ID + block(level) + text(b"s") + bytes((options,))),
            )
    for options in range(16):
        packet = frame(0x82, ID + block(5) + text(b"$share/g/s") + bytes((options,)))
        yield Case(f"shared, options {options:02x}", 5, packet)


def ids() -> Iterator[Case]:
    """Packet ids at their bounds."""
    for level in LEVELS:
        for name, raw in samples(level).items():
            body = body_of(raw)
            if ID in body:
                for number in (b"\0\0", b"\0\1", b"\xff\xff"):
                    yield Case(
                        f"{name}, id {number.hex()}", level, frame(raw[0], body.replace(ID, number, 1))
                    )


def chance(count: int = 1_500) -> Iterator[Case]:
    """Packets that are right but for one bit, one byte more, or one byte less, anywhere in their body."""
    draw = random.Random(SEED)
    for number in range(count):
        level = draw.choice(LEVELS)
        name, raw = draw.choice(sorted(samples(level).items()))
        body = bytearray(body_of(raw))
        if not body:
            continue
        at = draw.randrange(len(body))
        match draw.randrange(3):
            case 0:
                body[at] ^= 1 << draw.randrange(8)
            case 1:
                body.insert(at, draw.randrange(256))
            case _:
                del body[at]
        yield Case(f"{number}: {name}", level, frame(raw[0], bytes(body)))


READ, UNREADABLE = "read", "unreadable"
REQUESTS = {
    READ: (
        "deadline=100ms", "deadline=1us", "deadline=365d", "budget=1s", "separation=1s", "reliability=reliable",
        "durability=transient-local", "liveliness=manual,lease=2s", "ownership=exclusive", "partition=a|b*",
        "strict=no", "where=t > 3", "where=a = 'x%2Fy'", "deadline=2s,separation=1s",
    ),
    UNREADABLE: (
        "=", "deadline=", "deadline=0s", "deadline=1s,separation=2s", "where=a %3E 1",
        "deadline=1", "deadline=-1s", "deadline=1.5s", "deadline=366d",
        "deadline=9999999999999999s", "deadline=1s,", ",deadline=1s", "deadline=1s,deadline=2s",
        "nonsense=1", "DEADLINE=1s", "lifespan=1s", "strength=1", "strict=maybe", "partition=|", "where=", "where=a >",
        "where=" + "(" * 400, "ownership=both", "reliability=1", "separation=1s " + "x" * 1_100, "ä=1", "\x01=1",
    ),
}  # fmt: skip


def quality() -> Iterator[Case]:
    """What a client requests, offers, and is told of: filters ``$qos/…``, user properties, and topics of the server."""
    for level in LEVELS:
        invalid = b"\x8f" if level == 5 else b"\x80"
        for outcome, requests in REQUESTS.items():
            for request in requests:
                # Messages that separation leaves out are left out by intent: it is granted at QoS 0.
                granted = b"\0" if "separation" in request else b"\1"
                raw = text(f"$qos/{request}/t/+".encode())
                packet = frame(0x82, ID + block(level) + raw + b"\1")
                yield Case(request, level, packet, codes=granted if outcome == READ else invalid)
                again = frame(0x82, ID + block(level) + raw + b"\1" + text(b"s") + b"\2")
                codes = (granted if outcome == READ else invalid) + b"\2"
                yield Case(f"{request}, and another", level, again, codes=codes)
        for name in (
            "$qos/deadline=1s", "$qos/deadline=1s/", "$qos/deadline=1s/t#",
            "$qos/deadline=1s/#/t", "$qos/deadline=1s/$share/g/t", "$share/g/$qos/deadline=1s/t",
            "$qos/deadline=1s/$streams/#", "$qos/deadline=1s/$qos/deadline=1s/t",
        ):  # fmt: skip
            raw = frame(0x82, ID + block(level) + text(name.encode()) + b"\1")
            yield Case(name, level, raw, codes=invalid)
            gone = frame(0xA2, ID + block(level) + text(name.encode()))
            absent = b"\x11" if model.is_filter(name) else b"\x8f"
            yield Case(f"without {name}", level, gone, codes=absent if level == 5 else b"")
        for topic in ("$here/t", "$here/", "$here", "$qos/t", "$qos/incompatible/t"):
            for first in (0x30, 0x32, 0x34):
                body = text(topic.encode()) + (ID if first & 6 else b"") + block(level) + b"x"
                codes = b"" if first == 0x30 else b"\x87" if level == 5 else b""
                yield Case(f"{first:02x} to {topic}", level, frame(first, body), codes=codes)
    for outcome, requests in REQUESTS.items():
        for request in requests:
            policy, found, value = request.partition("=")
            if not found or "," in value or "%" in value or (outcome == UNREADABLE and not policy):
                continue
            pair = prop(0x26, text(f"request.{policy}".encode()) + text(value.encode()))
            granted = b"\0" if "separation" in request else b"\1"
            packet = frame(0x82, ID + block(5, pair) + text(b"t") + b"\1")
            yield Case(f"said: {request}", 5, packet, codes=granted if outcome == READ else b"\x83")
    for offer in ("deadline=1s", "reliability=reliable", "lifespan=1m", "ownership=shared"):
        yield Case(f"offered: {offer}", 5, _offering(offer, 0x32), codes=b"")
    for offer in (
        "deadline=x",
        "deadline=",
        "separation=1s",
        "where=a",
        "strict=yes",
        "nonsense=1",
        "strength=7",
    ):
        yield Case(f"offered: {offer}", 5, _offering(offer, 0x32), codes=b"\x99")
        yield Case(f"offered at QoS 2: {offer}", 5, _offering(offer, 0x34), codes=b"\x99")
        yield Case(f"offered at QoS 0: {offer}", 5, _offering(offer, 0x30), codes=b"")


def _offering(offer: str, first: int) -> bytes:
    policy, _, value = offer.partition("=")
    pair = prop(0x26, text(f"offer.{policy}".encode()) + text(value.encode()))
    return frame(first, text(b"offered") + (ID if first & 6 else b"") + block(5, pair) + b"x")


# ── CONNECT ──────────────────────────────────────────────────────────────────────────────────────────────────

PROTOCOLS = {3: b"MQIsdp", 4: b"MQTT", 5: b"MQTT"}


def connect(
    level: int,
    *,
    name: bytes | None = None,
    number: int | None = None,
    flags: int = 0x02,
    raw: bytes = b"",
    client_id: bytes = b"",
    will: bytes = b"",
    rest: bytes = b"",
    first: int = 0x10,
) -> bytes:
    """A CONNECT. ``will``: what its flag announces, properties included."""
    head = text(PROTOCOLS[level] if name is None else name) + bytes(
        (level if number is None else number, flags)
    )
    return frame(first, head + b"\0\x3c" + block(level, raw) + text(client_id) + will + rest)


def will(level: int, *, raw: bytes = b"", topic: bytes = b"gone", payload: bytes = b"x") -> bytes:
    return block(level, raw) + text(topic) + text(payload)


def connect_flags() -> Iterator[Case]:
    """Every byte of connect flags, with the fields that it announces."""
    for level in LEVELS:
        for flags in range(256):
            fields = will(level) if flags & 4 else b""
            rest = (text(b"name") if flags & 0x80 else b"") + (text(b"word") if flags & 0x40 else b"")
            raw = connect(level, flags=flags, client_id=b"f%d-%d" % (level, flags), will=fields, rest=rest)
            yield Case(f"flags {flags:02x}", level, raw)
        for first in range(0x10, 0x20):
            raw = connect(level, first=first, client_id=b"h%d-%d" % (level, first))
            yield Case(f"first byte {first:02x}", level, raw)


def connect_versions() -> Iterator[Case]:
    for name in (b"MQTT", b"MQIsdp", b"mqtt", b"", b"MQTT\0", b"HTTP", b"MQ"):
        for number in (0, 1, 2, 3, 4, 5, 6, 7, 0x83, 0x84, 0x85, 0xFF):
            level = 5 if (name, number) == (b"MQTT", 5) else 4
            yield Case(
                f"{name!r} {number}",
                level,
                connect(level, name=name, number=number, client_id=b"v%d" % number),
            )


def connect_properties() -> Iterator[Case]:
    """Every property in a CONNECT and in a will, once and twice, and values at their bounds."""
    for key in PROPERTIES:
        for count in (1, 2):
            name = f"{key:#04x} {count} times"
            own = b"p%d-%d" % (key, count)
            yield Case(name, 5, connect(5, raw=prop(key) * count, client_id=own))
            bequest = will(5, raw=prop(key) * count)
            yield Case(f"{name} in a will", 5, connect(5, flags=0x06, client_id=b"w" + own, will=bequest))
        yield Case(f"{key:#04x} cut", 5, connect(5, raw=prop(key)[:-1], client_id=b"c%d" % key))
    for key, value in (
        (0x17, b"\0"), (0x17, b"\2"), (0x19, b"\0"), (0x19, b"\2"), (0x21, b"\0\0"), (0x21, b"\0\1"), (0x22, b"\0\0"),
        (0x27, b"\0\0\0\0"), (0x11, b"\0\0\0\0"), (0x11, b"\xff\xff\xff\xff"),
    ):  # fmt: skip
        own = b"b%d-" % key + value.hex().encode()
        yield Case(f"{key:#04x} = {value.hex()}", 5, connect(5, raw=prop(key, value), client_id=own))


def connect_texts() -> Iterator[Case]:
    for number, raw in enumerate((*BAD_TEXTS, *GOOD_TEXTS)):
        for level in LEVELS:
            own = b"t%d-%d" % (level, number)
            yield Case(f"client id {raw[:8].hex()}", level, connect(level, client_id=raw))
            named = connect(level, flags=0x82, client_id=b"n" + own, rest=text(raw))
            yield Case(f"user name {raw[:8].hex()}", level, named)
            bequest = will(level, topic=raw)
            yield Case(
                f"will topic {raw[:8].hex()}", level, connect(level, flags=0x06, client_id=own, will=bequest)
            )
    for level in LEVELS:
        for topic in (b"", b"a/+", b"#"):
            bequest = will(level, topic=topic)
            yield Case(
                f"will topic {topic!r}", level, connect(level, flags=0x06, client_id=b"t", will=bequest)
            )
        for flags in (0x00, 0x02):
            yield Case(f"no client id, flags {flags:02x}", level, connect(level, flags=flags))


def connect_cuts() -> Iterator[Case]:
    for level in LEVELS:
        whole = body_of(
            connect(level, flags=0xC6, client_id=b"cut", will=will(level), rest=text(b"name") + text(b"word"))
        )
        for end in range(len(PROTOCOLS[level]) + 3, len(whole)):
            yield Case(f"cut at {end}", level, frame(0x10, whole[:end]))
        for tail in (b"\0", b"\0\1a"):
            yield Case(f"and {tail.hex()}", level, frame(0x10, whole + tail))


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "right": right,
    "first bytes": first_bytes,
    "lengths": lengths,
    "cuts": cuts,
    "properties": property_places,
    "texts": texts,
    "reasons": reasons,
    "filters": filters,
    "ids": ids,
    "chance": chance,
    "quality": quality,
}

CONNECTS: dict[str, Callable[[], Iterator[Case]]] = {
    "flags": connect_flags,
    "versions": connect_versions,
    "properties": connect_properties,
    "texts": connect_texts,
    "cuts": connect_cuts,
}
