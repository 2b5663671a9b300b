"""The stored part of a client's session, which survives connections, brokers and restarts.

One cell of a table for each client whose session outlives its connection. It is written with compare-and-set: a broker
whose write conflicts has lost the client to another one, and stops serving it. ``epoch`` grows with every connection.

A QoS 2 message of the client goes into the log under a record id that is stored here first (``inbound``). So the
client's repeat gets the same id, after a crash and at another broker, and the log takes it once. The id is forgotten
when the client releases its packet id (PUBREL), before PUBCOMP lets it use that for something new.

``received`` are those of ``inbound`` that the log has for certain: their repeats are answered at once, however late.
The others are looked for in the log when the client comes back (``sought``), and what is not there is appended again,
under the id that it had.

**How long a cell is kept.** A session's expiry counts from the close of its connection (MQTT 5, 3.1.2.11.2). So the
cell of a session that a broker serves is kept for SERVED_S longer: whether the client is there is the broker's to say,
not the store's. The broker that closes the connection names itself no longer, and from then on the expiry counts
(``kept_s``). For a broker that died, its next incarnation does that (``core.survival.orphans``).

**Confirmed.** A client that comes back to no session is told so in CONNACK, and starts from scratch. If that is lost,
it does not know. So a session that was not asked for with a clean start is ``confirmed`` when its client was heard
after CONNACK; a broker that takes an unconfirmed session makes a new one, and says again that there was none. Nothing
is lost with it: what a client is promised is stored after it was heard.

Messages carry their stream's metadata (decision 022). A broker to which the client comes while no coordinator answers
knows that from ``streams``; it may be older than what the coordinator will say. Metadata that no coordinator has taken
yet are ``unkept``: if the broker crashes then, the next one declares them again.

**It always fits into a record** (1 MiB), whatever the client does, and others say of its streams:

    subscriptions            384 KiB    ``limits.subscription_bytes_per_client`` at most; refused at SUBSCRIBE
    inbound, received, sought 256 KiB   ``core.delivery.record_ids``; refused at PUBLISH
    progress of four tracks  240 KiB    1 000 positions each, and every packet id that there is
    streams                   64 KiB    ``within``; of what does not fit nothing is known elsewhere
    names                     65 KiB    a client id of 256 bytes, a user name as long as MQTT has it

Why not an id that follows from the session, without a write: then a cell would have to say, for each packet id, how
often it was released. One count for all of them is not enough, because what a client repeats when it comes back is
mixed with releases, and these would change the ids of the repeats that are still to come.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from tocsin.core.delivery.window import Progress
from tocsin.core.filters import Filter, filter_type
from tocsin.core.forwarding.table import Subscription
from tocsin.model.stream import Value, size_of
from tocsin.model.versions import Packed

FOREVER_S = 0xFFFFFFFF  # an expiry that never comes
# How much longer than its expiry the cell of a served session is kept: so that a store may be away, or a clock jump,
# for most of a day. It is rewritten after a third of that (``core.delivery.session_cell``).
SERVED_S: Final = 86_400
STREAMS_MAX = 100  # that a cell tells of; of more, only the first are known elsewhere
STREAMS_MAX_BYTES = 64 << 10  # of their topics and their metadata


class StoredSession(msgspec.Struct, frozen=True):
    """The cell of one client."""

    client: str
    uid: str  # of the session; the client's next one has another
    expiry_s: int
    epoch: int = 1
    broker: str = ""  # who serves it; empty if nobody does
    owner: str = ""  # the user whose it is; empty if it was made by nobody in particular
    subscriptions: dict[str, Subscription] = {}
    progress: Progress = Progress(1)
    inbound: dict[int, str] = {}  # QoS 2 packet ids of the client that are not released → record id
    received: tuple[int, ...] = ()  # those of them whose message is in the log
    sought: dict[
        int, tuple[int, str]
    ] = {}  # the others → (position, topic): the log has it behind that, or not
    left: int = 0  # the last epoch in which its client went and no will of it was left
    home: str = ""  # the broker that serves it, or served it last, and holds its subscriptions to channels
    results: Progress | None = (
        None  # of channels, in places (``model.results.result_position``); None: it never had any
    )
    critical: Progress | None = None  # the same of critical ones; the former is then of the others alone
    streams: dict[str, dict[str, Value]] = {}  # the metadata of the streams that the client publishes on
    # Of critical messages; ``progress`` is then of the others alone. None: it is of both, and no critical one was sent.
    critical_messages: Progress | None = None
    confirmed: bool = True  # its client knows that it has this session, and not an earlier one
    # The indices in ``streams`` of metadata that no coordinator has; not written if there are none.
    unkept: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def unkept_streams(self) -> tuple[str, ...]:
        """The topics of those streams."""
        topics = tuple(self.streams)
        places = self.unkept or ()
        return tuple(topics[place] for place in places if 0 <= place < len(topics))

    def named(self, kind: type[Filter]) -> tuple[str, ...]:
        """The subscriptions of one kind."""
        return tuple(name for name in self.subscriptions if filter_type(name) is kind)


def kept_s(session: StoredSession) -> int | None:
    """How long a cell is kept if nobody writes it again; None: for ever."""
    if session.expiry_s >= FOREVER_S:
        return None
    return max(1, session.expiry_s) + (SERVED_S if session.broker else 0)


SESSION: Final = Packed("a stored session", msgspec.msgpack.Decoder(StoredSession))


def session_key(client: str) -> str:
    """The cell's key: client ids are long and of any alphabet, keys are not."""
    return hashlib.blake2b(client.encode(), digest_size=20).hexdigest()


def within(streams: dict[str, dict[str, Value]]) -> dict[str, dict[str, Value]]:
    """The metadata of a client's streams as far as a cell has room: the first of them."""
    kept: dict[str, dict[str, Value]] = {}
    room = STREAMS_MAX_BYTES
    for topic, keys in streams.items():
        room -= len(topic.encode()) + size_of(keys)
        if room < 0 or len(kept) == STREAMS_MAX:
            break
        kept[topic] = keys
    return kept


def encode_session(session: StoredSession) -> bytes:
    return SESSION.write(session)


def decode_session(data: bytes) -> StoredSession:
    """The session, or ``Malformed`` for whatever is none."""
    return SESSION.read(data)
