"""The PROXY protocol, version 2: how a proxy tells a server whose connection it passes on.

    signature (12 bytes)  0x21: version 2, PROXY  family and transport  length  addresses  TLVs

Only TCP over IPv4 and IPv6 is written and read here. Two type-length-values are used: the standard's own for TLS
(0x20), if the client came over TLS, and one of ours (0xE0) with the version of what a coordinator's door and a broker
agree on beyond the standard (decision 054).
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final

import msgspec

from tocsin.errors import Malformed
from tocsin.model.versions import Stated

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
HEAD_BYTES: Final = 16
BODY_MAX_BYTES: Final = 512  # addresses and our own values take less than 60
PASSED_ON: Final = Stated("what a coordinator's door passes on to a broker")
_PROXY: Final = 0x21
_FAMILIES: Final = {0x11: 4, 0x21: 16}  # TCP over IPv4 and IPv6: bytes of an address
_TLS: Final = 0x20
_OURS: Final = 0xE0
_CLIENT_TLS: Final = b"\x01\0\0\0\0"  # the client came over TLS; its certificate is not vouched for


class PassedOn(msgspec.Struct, frozen=True):
    """Whose connection it is."""

    address: str  # the client's
    port: int
    tls: bool = False  # it came over TLS


def write_header(client: PassedOn) -> bytes:
    """The header of a connection. An address that is none is told as 0.0.0.0, which is never this machine's own."""
    try:
        address = ipaddress.ip_address(client.address.partition("%")[0])
    except ValueError:
        address = ipaddress.IPv4Address(0)
    family = 0x11 if address.version == 4 else 0x21
    blank = bytes(_FAMILIES[family])  # we do not tell which of the door's own addresses it was
    body = address.packed + blank + struct.pack("!HH", client.port, 0)
    if client.tls:
        body += struct.pack("!BH", _TLS, len(_CLIENT_TLS)) + _CLIENT_TLS
    version = PASSED_ON.text.encode()
    body += struct.pack("!BH", _OURS, len(version)) + version
    return SIGNATURE + struct.pack("!BBH", _PROXY, family, len(body)) + body


def read_header(data: bytes) -> tuple[PassedOn, int] | None:
    """The header at the beginning of these bytes, and its length; None while it is not whole.

    Raises ``Malformed``, and ``FormatNewer`` if a newer door wrote it.
    """
    if not SIGNATURE.startswith(data[:12]) and data[:12] != SIGNATURE:
        raise Malformed("there is no header of the PROXY protocol")
    if len(data) < HEAD_BYTES:
        return None
    kind, family, length = struct.unpack_from("!BBH", data, 12)
    if kind != _PROXY or family not in _FAMILIES or length > BODY_MAX_BYTES:
        raise Malformed("the header of the PROXY protocol is not one that a door writes")
    if len(data) < HEAD_BYTES + length:
        return None
    return _read_body(data[HEAD_BYTES : HEAD_BYTES + length], _FAMILIES[family]), HEAD_BYTES + length


def _read_body(body: bytes, size: int) -> PassedOn:
    at = 2 * size + 4
    if len(body) < at:
        raise Malformed("the header of the PROXY protocol lacks addresses")
    address = ipaddress.ip_address(body[:size])
    (port,) = struct.unpack_from("!H", body, 2 * size)
    tls, version = False, None
    while at < len(body):
        if at + 3 > len(body):
            raise Malformed("the header of the PROXY protocol ends within a value")
        kind, length = struct.unpack_from("!BH", body, at)
        value, at = body[at + 3 : at + 3 + length], at + 3 + length
        if at > len(body):
            raise Malformed("the header of the PROXY protocol ends within a value")
        if kind == _TLS:
            tls = bool(value[:1] and value[0] & 1)
        elif kind == _OURS:
            version = value.decode("ascii", "replace")
    PASSED_ON.check(version)
    return PassedOn(str(address), port, tls)
