"""The messages between the parts of the counter, and the entries of its log."""

from __future__ import annotations

import msgspec

from tocsin.model.network import Address, Message
from tocsin.ports import LogSpec, Record, TableSpec

LOG = LogSpec("counter", ("counter.>",))
LEASES = TableSpec("leases")
POSITIONS = TableSpec("positions")

Key = tuple[str, int]  # the asker, and its number for the request: the same however often it is repeated


class Increment(Message, frozen=True):
    """Client → server: count one more. ``number`` is the client's own, so that a repeat is known as one."""

    client: Address
    number: int


class Counted(Message, frozen=True):
    """Server → client: your increment is durable, and made it so many."""

    number: int
    count: int


class NotHolder(Message, frozen=True):
    """Server → client: not me; perhaps ``holder``."""

    number: int
    holder: Address | None


class Notice(Message, frozen=True):
    """Notifier → listener: the entry at ``position`` made it ``count``."""

    position: int
    count: int


class Noticed(Message, frozen=True):
    """Listener → notifier: I have it."""

    position: int


class Opened(msgspec.Struct, frozen=True, tag=True):
    """In the log: a new holder begins. Nothing of an earlier epoch can follow, for it expects another position."""

    epoch: int
    holder: Address


class Added(msgspec.Struct, frozen=True, tag=True):
    """In the log: an increment."""

    epoch: int
    client: Address
    number: int
    count: int

    @property
    def key(self) -> Key:
        return self.client, self.number


_decoder: msgspec.json.Decoder[Opened | Added] = msgspec.json.Decoder(Opened | Added)


def record(fact: Opened | Added, record_id: str) -> Record:
    subject = "counter.opened" if isinstance(fact, Opened) else "counter.added"
    return Record(subject, msgspec.json.encode(fact), record_id)


def fact(payload: bytes) -> Opened | Added:
    return _decoder.decode(payload)
