"""What is stored of a client's session, so that it survives connections, brokers and restarts.

One cell of a table for each client whose session outlives its connection. It is written with compare-and-set: a broker
whose write conflicts has lost the client to another one, and stops serving it. ``epoch`` grows with every connection.

A QoS 2 message of the client goes into the log under a record id that follows from the cell (``record_id``): after a
crash, the client's repeat gets the same id and is not written again. For that the cell must know of every released
packet id before the client may use it for something new, so ``releases`` is stored before PUBCOMP goes out.
"""

from __future__ import annotations

import hashlib

import msgspec

from tocsin.core.delivery import Progress
from tocsin.core.forwarding import Subscription
from tocsin.errors import Malformed


class StoredSession(msgspec.Struct, frozen=True):
    """The cell of one client."""

    client: str
    uid: str  # of this session; another one of the same client has another
    expiry_s: int
    epoch: int = 1
    broker: str = ""  # who serves it; empty if nobody does
    subscriptions: dict[str, Subscription] = {}
    progress: Progress = Progress(1)
    inbound: dict[
        int, str
    ] = {}  # QoS 2 packet ids of the client that were taken and not released → record id
    releases: int = 0  # how many were

    def record_id(self, packet_id: int) -> str:
        """The id under which a QoS 2 message goes into the log."""
        return self.inbound.get(packet_id) or f"{self.uid}.{packet_id}.{self.releases}"


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StoredSession)


def session_key(client: str) -> str:
    """The cell's key: client ids are long and of any alphabet, keys are not."""
    return hashlib.blake2b(client.encode(), digest_size=20).hexdigest()


def encode_session(session: StoredSession) -> bytes:
    return _encoder.encode(session)


def decode_session(data: bytes) -> StoredSession:
    """The session, or ``Malformed`` for whatever is none."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise Malformed(f"not a stored session: {error}") from None
