"""The NATS client protocol, without input or output: what a server says, and what we say to it.

    parser = Parser(max_payload_bytes)
    for said in parser.feed(data):                list[Info | Incoming | Ping | Pong | Failure]
        ...                                       ``Failure`` is the server's -ERR
    connect(...), subscribe(...), unsubscribe(...), frame(...) -> bytes

Invariants: how the bytes were cut into chunks never changes what comes out; what is kept is less than one message. A
server that breaks the protocol, or announces more than the bound, raises ``ProtocolBroken``; the connection is then of
no use any more.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

CONTROL_MAX_BYTES: Final = 1 << 20  # of one line: INFO has the addresses of all servers
PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"

_END: Final = b"\r\n"
_VERSION: Final = "NATS/1.0"
_json = msgspec.json.Encoder()


class ProtocolBroken(Exception):
    """The peer does not speak the NATS protocol."""


class Incoming(msgspec.Struct, frozen=True):
    """A message from a server. ``sid`` is the number of the subscription that it is for."""

    subject: str
    reply: str
    payload: bytes
    headers: dict[str, str]
    sid: int = 0

    @property
    def status(self) -> str:
        return self.headers.get("Status", "")


class Info(msgspec.Struct, frozen=True):
    """A server's INFO: its first message, and again when it changes."""

    max_payload: int = 1 << 20
    nonce: str = ""
    tls_required: bool = False
    tls_available: bool = False
    connect_urls: tuple[str, ...] = ()  # of other servers of its cluster: host and port
    server_name: str = ""
    cluster: str = ""  # that the server belongs to; empty if it is alone


class Ping(msgspec.Struct, frozen=True):
    """The server asks whether we are there."""


class Pong(msgspec.Struct, frozen=True):
    """The answer to a ping of ours."""


class Failure(msgspec.Struct, frozen=True):
    """A server's -ERR. Most complaints end the connection; refused rights do not."""

    problem: str


Said = Info | Incoming | Ping | Pong | Failure

_info = msgspec.json.Decoder(Info)
_PING, _PONG = Ping(), Pong()


class Parser:
    """Reads what one server says."""

    __slots__ = ("_held", "_max_payload_bytes", "_needed")

    def __init__(self, max_payload_bytes: int) -> None:
        self._max_payload_bytes = max_payload_bytes
        self._held = bytearray()  # the beginning of an incomplete operation
        self._needed = 0  # how many bytes must be held before it is worth looking again

    def feed(self, data: bytes) -> list[Said]:
        """The operations that these bytes complete. Raises ``ProtocolBroken``."""
        held = self._held
        if held:
            held += data
            if len(held) < self._needed:
                return []
            data = bytes(held)
            held.clear()
        found: list[Said] = []
        at = self._read(data, found)
        if at < len(data):
            held += memoryview(data)[at:]
        return found

    def _read(self, data: bytes, found: list[Said]) -> int:
        """Append what is whole; where the rest begins. The hot loop."""
        at, end = 0, len(data)
        self._needed = 0
        while at < end:
            line_end = data.find(_END, at)
            if line_end < 0:
                if end - at > CONTROL_MAX_BYTES:
                    raise ProtocolBroken("a line of the server does not end")
                break
            kind = data[at : at + 4]
            if kind == b"MSG " or kind == b"HMSG":
                words = data[at:line_end].split()
                try:
                    size = int(words[-1])
                    headers_size = int(words[-2]) if kind == b"HMSG" else 0
                    subject, sid = words[1].decode(), int(words[2])
                    count = len(words) - (5 if kind == b"HMSG" else 4)
                    reply = words[3].decode() if count == 1 else ""
                except (IndexError, ValueError) as error:
                    raise ProtocolBroken("a message of the server is malformed") from error
                if count not in (0, 1) or not 0 <= headers_size <= size <= self._max_payload_bytes:
                    raise ProtocolBroken(f"the server announces a message of {size} bytes")
                start = line_end + 2
                stop = start + size
                if stop + 2 > end:
                    self._needed = stop + 2 - at
                    break
                body = start + headers_size
                headers = parse_headers(data[start:body]) if headers_size else {}
                found.append(Incoming(subject, reply, data[body:stop], headers, sid))
                at = stop + 2
            else:
                found.extend(self._control(data[at:line_end]))
                at = line_end + 2
        return at

    def _control(self, line: bytes) -> list[Said]:
        verb, _, rest = line.partition(b" ")
        match verb.upper():
            case b"PING":
                return [_PING]
            case b"PONG":
                return [_PONG]
            case b"+OK":
                return []
            case b"-ERR":
                return [Failure(rest.strip().strip(b"'").decode(errors="replace"))]
            case b"INFO":
                try:
                    return [_info.decode(rest)]
                except msgspec.MsgspecError as error:
                    raise ProtocolBroken(f"the server's INFO cannot be read: {error}") from error
            case _:
                raise ProtocolBroken(f"the server says {line[:40]!r}, which is no NATS")


def parse_headers(block: bytes) -> dict[str, str]:
    """Headers of a message. A status in the first line is there as ``Status`` and ``Description``."""
    first, *lines = block.decode(errors="replace").split("\r\n")
    if not first.startswith(_VERSION):
        raise ProtocolBroken("a message of the server has headers of another version")
    headers: dict[str, str] = {}
    if len(first) > len(_VERSION):
        status, _, words = first[len(_VERSION) :].strip().partition(" ")
        headers["Status"] = status
        if words:
            headers["Description"] = words.strip()
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip()] = value.strip()
    return headers


# ── what we say ──────────────────────────────────────────────────────────────────────────────────────────────


def connect(options: dict[str, Any]) -> bytes:
    """The first thing that a client says, with what it proves itself by."""
    return b"CONNECT %b\r\n" % _json.encode(options)


def subscribe(subject: str, group: str, sid: int) -> bytes:
    """Hear a subject; of a group one member does."""
    target = f"{subject} {group}" if group else subject
    return f"SUB {target} {sid}\r\n".encode()


def unsubscribe(sid: int) -> bytes:
    return b"UNSUB %d\r\n" % sid


def frame(subject: str, reply: str, headers: bytes, payload: bytes) -> bytes:
    """A publication. ``headers`` are whole lines, each with its line end."""
    target = f"{subject} {reply}".encode() if reply else subject.encode()
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (target, len(payload), payload)
    size = len(headers) + 12  # the version line, and the empty line at the end
    return b"HPUB %b %d %d\r\nNATS/1.0\r\n%b\r\n%b\r\n" % (
        target,
        size,
        size + len(payload),
        headers,
        payload,
    )
