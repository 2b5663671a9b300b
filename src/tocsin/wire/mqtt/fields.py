"""The few field types that every MQTT packet is made of, read with bounds and written with checks.

A reader takes the frame, where the field starts and where the readable part ends, and returns the value and where
the next field starts. Every error is ``Malformed`` and names the field. No reader looks past ``end``.
"""

from __future__ import annotations

from tocsin.errors import Malformed

STRING_MAX_BYTES = 65_535  # the length is two bytes on the wire
VARINT_MAX = (1 << 28) - 1  # four bytes of seven bits


def read_u8(frame: bytes, at: int, end: int, field: str) -> tuple[int, int]:
    if at >= end:
        raise Malformed(f"{field} is missing: the packet ends at byte {at}")
    return frame[at], at + 1


def read_u16(frame: bytes, at: int, end: int, field: str) -> tuple[int, int]:
    if at + 2 > end:
        raise Malformed(f"{field} is missing: the packet ends at byte {end}")
    return frame[at] << 8 | frame[at + 1], at + 2


def read_varint(frame: bytes, at: int, end: int, field: str) -> tuple[int, int]:
    """A variable byte integer: at most four bytes, and no more of them than the value needs."""
    value = 0
    for index in range(4):
        if at + index >= end:
            raise Malformed(f"{field} is cut off at byte {end}")
        byte = frame[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if byte == 0 and index:
                raise Malformed(f"{field} is encoded in more bytes than it needs")
            return value, at + index + 1
    raise Malformed(f"{field} is longer than four bytes")


def read_binary(frame: bytes, at: int, end: int, field: str) -> tuple[bytes, int]:
    length, at = read_u16(frame, at, end, f"the length of {field}")
    stop = at + length
    if stop > end:
        raise Malformed(f"{field} should have {length} bytes, but the packet has only {end - at} left")
    return frame[at:stop], stop


def read_string(frame: bytes, at: int, end: int, field: str) -> tuple[str, int]:
    """A UTF-8 string: well formed, without surrogates and without U+0000."""
    raw, at = read_binary(frame, at, end, field)
    return text_of(raw, field), at


def skip_string(frame: bytes, at: int, end: int, field: str) -> int:
    """Where a string ends that is as ``read_string`` wants it. Short ones of ASCII, which are most, cost one look."""
    start = at + 2
    if start <= end:
        stop = start + (frame[at] << 8 | frame[at + 1])
        if stop <= end:
            raw = frame[start:stop]
            if raw.isascii() and b"\0" not in raw:
                return stop
    return read_string(frame, at, end, field)[1]


def read_filter(frame: bytes, at: int, end: int) -> int:
    """A topic filter, of which only its form is judged: it is text of at least one character (MQTT 5, 4.7.3)."""
    start = at + 2
    _, at = read_string(frame, at, end, "a topic filter")
    if at == start:
        raise Malformed("a topic filter is empty; at least one character is needed")
    return at


def text_of(raw: bytes, field: str) -> str:
    """The text of a string field's bytes."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"{field} is not UTF-8: {error.reason} at byte {error.start}") from None
    if "\0" in text:
        raise Malformed(f"{field} holds the character U+0000 at position {text.index(chr(0))}")
    return text


def write_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value > VARINT_MAX:
        raise ValueError(f"{value} is over {VARINT_MAX}, the largest length that MQTT can say")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def write_binary(value: bytes, field: str) -> bytes:
    if len(value) > STRING_MAX_BYTES:
        raise ValueError(f"{field} has {len(value)} bytes; at most {STRING_MAX_BYTES} are possible")
    return len(value).to_bytes(2, "big") + value


def write_string(value: str, field: str) -> bytes:
    """The bytes of a string field; ValueError (UnicodeEncodeError is one) if it has no encoding."""
    if "\0" in value:
        raise ValueError(f"{field} holds the character U+0000")
    return write_binary(value.encode(), field)


def write_packet_id(packet_id: int | None) -> bytes:
    if not packet_id:
        raise ValueError("the packet id must be between 1 and 65535")
    return packet_id.to_bytes(2, "big")
