"""WebSocket (RFC 6455), the client's side, without input or output; ``wire.websocket`` is the server's.

    caller = Caller(host, port, nonce, max_frame_bytes)       nonce: 16 random bytes
    caller.request                                            to be sent first
    for item in caller.feed(data):                            list[Granted | bytes | Ping | Close | Broken]
        ...                                                   Granted is first, once; Close and Broken are last
    masked(frame, mask) -> bytes                              a frame of ``wire.websocket`` as clients must send it

States: asked → open → over. Invariant: what is kept is less than one frame, or than one response of REQUEST_MAX_BYTES.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

import msgspec

from tocsin.wire.websocket import (
    GUID,
    PATH,
    PROTOCOL_ERROR,
    REQUEST_MAX_BYTES,
    SUBPROTOCOL,
    TOO_BIG,
    Broken,
    Close,
    Ping,
    unmasked,
)

_END: Final = b"\r\n\r\n"
_BINARY, _CLOSE, _PING, _PONG = 0x2, 0x8, 0x9, 0xA
_FINAL, _KIND, _MASKED = 0x80, 0x0F, 0x80


class Granted(msgspec.Struct, frozen=True):
    """The server speaks WebSocket with us."""


Item = Granted | bytes | Ping | Close | Broken


class Caller:
    """One WebSocket that we asked for."""

    def __init__(self, host: str, port: int, nonce: bytes, max_frame_bytes: int) -> None:
        key = base64.b64encode(nonce)
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = (
            f"GET {PATH.decode()} HTTP/1.1",
            f"Host: {authority}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key.decode()}",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
        )
        self.request = "\r\n".join(lines).encode() + _END
        self._proof = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        self._max_frame_bytes = max_frame_bytes
        self._held = bytearray()
        self._state = "asked"

    def feed(self, data: bytes) -> list[Item]:
        """What these bytes complete."""
        if self._state == "over":
            return []
        self._held += data
        items: list[Item] = []
        if self._state == "asked":
            head, end, rest = self._held.partition(_END)
            if end and (problem := self._problem(bytes(head))) is None:
                self._state, self._held = "open", rest
                items.append(Granted())
            elif end or len(head) > REQUEST_MAX_BYTES:
                words = (problem if end else None) or "the answer is no response to an upgrade"
                items.append(self._over(Broken(PROTOCOL_ERROR, words)))
        while self._state == "open" and (item := self._frame()) is not None:
            items.append(item)
        return items

    def _problem(self, head: bytes) -> str | None:
        """Why a response is not the one that grants our request; None if it is."""
        first, *lines = head.decode("latin-1").split("\r\n")
        if first.split(" ")[1:2] != ["101"]:
            return f"the server answered {first[:80]!r}; is there MQTT over WebSocket at {PATH.decode()}?"
        fields = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): text.strip() for name, _, text in fields}
        if headers.get("sec-websocket-accept") != self._proof:
            return "the server did not prove that it understood the request"
        if headers.get("sec-websocket-protocol") != SUBPROTOCOL:
            return f"the server does not speak the subprotocol {SUBPROTOCOL!r}"
        return None

    def _frame(self) -> bytes | Ping | Close | Broken | None:
        """What the next whole frame says; empty bytes for one that says nothing to us."""
        held = self._held
        if len(held) < 2:
            return None
        first, size, at = held[0], held[1], 2
        if size & _MASKED:
            return self._over(Broken(PROTOCOL_ERROR, "frames of servers are not masked"))
        if size > 125:
            width = 2 if size == 126 else 8
            if len(held) < 2 + width:
                return None
            size, at = int.from_bytes(held[2 : 2 + width]), 2 + width
        if size > self._max_frame_bytes:
            return self._over(Broken(TOO_BIG, f"a frame of {size} bytes is too large"))
        if len(held) < at + size:
            return None
        payload = bytes(held[at : at + size])
        del held[: at + size]
        kind = first & _KIND
        if kind <= _BINARY and kind != 1:  # a message, or a further part of one: to us a stream of bytes
            return payload
        if kind == _PING:
            return Ping(payload)
        if kind == _PONG:
            return b""
        return self._over(
            Close() if kind == _CLOSE else Broken(PROTOCOL_ERROR, f"a frame of kind {kind} is not expected")
        )

    def _over(self, last: Close | Broken) -> Close | Broken:
        self._state, self._held = "over", bytearray()
        return last


def masked(frame: bytes, mask: bytes) -> bytes:
    """A whole frame as servers make it, as clients must send it. ``mask``: 4 random bytes, others for every frame."""
    size = frame[1]
    head = 2 if size < 126 else 4 if size == 126 else 10
    return bytes((frame[0], size | _MASKED)) + frame[2:head] + mask + unmasked(mask, frame[head:])
