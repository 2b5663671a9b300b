"""WebSocket (RFC 6455), the server's side, without input or output: the request that opens it, and its frames.

    upgrade = answer(request_head)                            Upgrade or Refusal, each with the bytes to send
    reader = Reader(max_frame_bytes)                          one per connection, from the upgrade on
    for item in reader.feed(data):                            list[bytes | Ping | Close | Broken]
        ...                                                   bytes are data, of one frame or of several; Close
                                                              and Broken are last, and final: whatever is fed
                                                              afterwards gives []
    binary_frame(data), pong_frame(data), close_frame(code, reason) -> bytes

Only binary messages are taken, and no extension is agreed on. Where messages and fragments begin is checked and then
forgotten: the protocol above is a stream of bytes.

Invariants: a frame's kind, flags, mask and size are judged as soon as its first bytes say them, before a byte of its
payload is kept; what is kept is less than one frame; how the bytes were cut into chunks never changes what comes out,
except where data is joined.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Final

import msgspec

PATH: Final = b"/mqtt"
SUBPROTOCOL: Final = "mqtt"  # its name in the MQTT standard, section 6
REQUEST_MAX_BYTES: Final = 16 << 10  # as web servers commonly have it
ORIGIN_MAX: Final = 280  # characters kept: a scheme, a DNS name (253 at most) and a port

OK, PROTOCOL_ERROR, UNSUPPORTED_DATA, INVALID_TEXT, TOO_BIG, INTERNAL_ERROR = (
    1000,
    1002,
    1003,
    1007,
    1009,
    1011,
)

GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_STATUS: Final = {
    400: "Bad Request",
    404: "Not Found",
    426: "Upgrade Required",
}
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_FINAL, _RESERVED, _KIND, _MASKED = 0x80, 0x70, 0x0F, 0x80
_CONTROL_MAX_BYTES: Final = 125
_SHORT: Final = tuple(bytes([_FINAL | _BINARY, size]) for size in range(126))  # headers of most frames


# ── the request ──────────────────────────────────────────────────────────────────────────────────────────────


class Upgrade(msgspec.Struct, frozen=True):
    """The connection becomes a WebSocket with this response."""

    response: bytes
    origin: str | None


class Refusal(msgspec.Struct, frozen=True):
    """It does not; the response says why."""

    response: bytes


def answer(head: bytes) -> Upgrade | Refusal:
    """What becomes of a request. ``head`` is all of it, without the empty line at its end."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    path, _, version = rest.rpartition(" ")
    if method != "GET" or version != "HTTP/1.1" or not path:
        return _refusal(400, "Only GET of HTTP/1.1 is understood here.")
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or not _NAME.fullmatch(name):
            return _refusal(400, "A header of the request is malformed.")
        headers.setdefault(name.lower(), []).append(text.strip(" \t"))
    if path.partition("?")[0].encode("latin-1") != PATH:
        return _refusal(404, f"There is only {PATH.decode()} here: MQTT over WebSocket.")
    if "upgrade" not in _words(headers, "connection", lower=True):
        return _refusal(426, "This address speaks MQTT over WebSocket.")
    if "websocket" not in _words(headers, "upgrade", lower=True):
        return _refusal(400, "Can upgrade only to websocket.")
    if headers.get("sec-websocket-version") != ["13"]:
        return _refusal(426, "Use WebSocket version 13 (RFC 6455).")
    key = _key(headers.get("sec-websocket-key", []))
    if key is None:
        return _refusal(400, "Sec-WebSocket-Key is not a key: 16 bytes in base64.")
    if SUBPROTOCOL not in _words(headers, "sec-websocket-protocol"):
        return _refusal(400, f"Ask for the subprotocol {SUBPROTOCOL!r}.")
    origin = headers.get("origin")
    return Upgrade(_accepting(key), origin[0][:ORIGIN_MAX] if origin else None)


def _words(headers: dict[str, list[str]], name: str, *, lower: bool = False) -> set[str]:
    """The words of a header that is a list, whether it came in one line or in several."""
    words = {word.strip() for text in headers.get(name, []) for word in text.split(",")}
    return {word.lower() for word in words} if lower else words


def _key(values: list[str]) -> bytes | None:
    if len(values) != 1:
        return None
    try:
        key = values[0].encode("ascii")
        return key if len(base64.b64decode(key, validate=True)) == 16 else None
    except (UnicodeEncodeError, binascii.Error):
        return None


def _accepting(key: bytes) -> bytes:
    proof = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
    lines = (
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {proof}",
        f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
        "",
        "",
    )
    return "\r\n".join(lines).encode()


def _refusal(status: int, words: str) -> Refusal:
    body = words + "\n"
    lines = [f"HTTP/1.1 {status} {_STATUS[status]}", "Connection: close"]
    if status == 426:
        lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    lines += ["Content-Type: text/plain", f"Content-Length: {len(body)}", "", body]
    return Refusal("\r\n".join(lines).encode())


# ── frames that arrive ───────────────────────────────────────────────────────────────────────────────────────


class Ping(msgspec.Struct, frozen=True):
    payload: bytes


class Close(msgspec.Struct, frozen=True):
    """The peer takes its leave."""


class Broken(msgspec.Struct, frozen=True):
    """The peer breaks the rules, and is to be told so in a CLOSE with this code."""

    code: int
    reason: str


Item = bytes | Ping | Close | Broken


class Reader:
    """What arrives on one connection after the upgrade."""

    __slots__ = ("_held", "_max_frame_bytes", "_needed", "_over", "_plain")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._held: bytearray | None = None  # the beginning of a frame whose rest has not come
        self._needed = 0  # how many bytes must be held before it is worth looking again
        self._over = False  # Close or Broken was the last item
        # First byte of a data frame that ends a message here: or of its continuation.
        self._plain = _FINAL | _BINARY

    def feed(self, data: bytes) -> list[Item]:
        """What these bytes complete."""
        if self._over:
            return []
        held = self._held
        if held is not None:
            held += data
            if len(held) < self._needed:
                return []
            data, self._held = bytes(held), None
        items: list[Item] = []
        rest = self._read(data, items)
        if rest < len(data) and not self._over:
            self._held = bytearray(memoryview(data)[rest:])
        return items

    def _read(self, data: bytes, items: list[Item]) -> int:
        """Append what whole frames say; where the first unfinished one begins. The hot loop."""
        at, end = 0, len(data)
        chunks: list[bytes] = []
        self._needed = 0
        while end - at > 1 and not self._over:
            first, size = data[at], data[at + 1] - _MASKED
            if first != self._plain or size < 0:
                problem = self._judge(first, size)
                if problem is not None:
                    self._end(problem, chunks, items)
                    break
            start = at + 6
            if size > _CONTROL_MAX_BYTES:
                width = 2 if size == 126 else 8
                start += width
                if end - at < width + 2:
                    break
                size = int.from_bytes(data[at + 2 : at + 2 + width])
                problem = self._judge_long(size, width)
                if problem is not None:
                    self._end(problem, chunks, items)
                    break
            stop = start + size
            if stop > end:
                self._needed = stop - at
                break
            payload = unmasked(data[start - 4 : start], data[start:stop])
            at = stop
            if first & _KIND <= _BINARY:
                chunks.append(payload)
                self._plain = _FINAL | (_BINARY if first & _FINAL else _CONTINUATION)
            else:
                self._control(first & _KIND, payload, chunks, items)
        _flush(chunks, items)
        return at

    def _judge(self, first: int, size: int) -> Broken | None:
        """What is wrong with a frame that begins so. ``size`` is its second byte, less the bit of the mask."""
        kind = first & _KIND
        if first & _RESERVED:
            return Broken(PROTOCOL_ERROR, "no extension was agreed on: the reserved bits must be 0")
        if size < 0:
            return Broken(PROTOCOL_ERROR, "frames of clients must be masked")
        if kind == _TEXT:
            return Broken(UNSUPPORTED_DATA, "MQTT comes in binary frames")
        if kind in (_CLOSE, _PING, _PONG):
            if first & _FINAL and size <= _CONTROL_MAX_BYTES:
                return None
            return Broken(PROTOCOL_ERROR, "control frames are whole, and of 125 bytes at most")
        if kind not in (_BINARY, _CONTINUATION):
            return Broken(PROTOCOL_ERROR, f"frames of kind {kind} are not known")
        if kind != self._plain & _KIND:
            return Broken(PROTOCOL_ERROR, "fragments of a message must follow each other")
        return None

    def _judge_long(self, size: int, width: int) -> Broken | None:
        if size < (126 if width == 2 else 1 << 16) or size >> 63:
            return Broken(PROTOCOL_ERROR, "a size is written in as few bytes as it takes")
        if size > self._max_frame_bytes:
            return Broken(TOO_BIG, f"a frame of {size} bytes is over the limit of {self._max_frame_bytes}")
        return None

    def _control(self, kind: int, payload: bytes, chunks: list[bytes], items: list[Item]) -> None:
        if kind == _PING:
            _flush(chunks, items)
            items.append(Ping(payload))
        elif kind == _CLOSE:
            self._end(_close_item(payload), chunks, items)

    def _end(self, last: Close | Broken, chunks: list[bytes], items: list[Item]) -> None:
        _flush(chunks, items)
        items.append(last)
        self._over = True


def _flush(chunks: list[bytes], items: list[Item]) -> None:
    if chunks:
        items.append(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        chunks.clear()


def unmasked(mask: bytes, payload: bytes) -> bytes:
    """As one large number each: the interpreter's fastest exclusive or."""
    size = len(payload)
    key = (mask * ((size >> 2) + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(key)).to_bytes(size)


def _close_item(payload: bytes) -> Close | Broken:
    code = int.from_bytes(payload[:2])
    known = 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code < 5000
    if payload and (len(payload) == 1 or not known):
        return Broken(PROTOCOL_ERROR, "a CLOSE begins with a code of RFC 6455, 7.4")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        return Broken(INVALID_TEXT, "the reason of a CLOSE is UTF-8")
    return Close()


# ── frames that leave ────────────────────────────────────────────────────────────────────────────────────────


def binary_frame(data: bytes) -> bytes:
    """One whole message. Hot."""
    size = len(data)
    if size < 126:
        return _SHORT[size] + data
    if size < 1 << 16:
        return b"\x82\x7e" + size.to_bytes(2) + data
    return b"\x82\x7f" + size.to_bytes(8) + data


def pong_frame(payload: bytes) -> bytes:
    return bytes([_FINAL | _PONG, len(payload)]) + payload


def close_frame(code: int, reason: str = "") -> bytes:
    payload = code.to_bytes(2) + reason.encode()
    assert len(payload) <= _CONTROL_MAX_BYTES, "reasons are our own, and short"
    return bytes([_FINAL | _CLOSE, len(payload)]) + payload
