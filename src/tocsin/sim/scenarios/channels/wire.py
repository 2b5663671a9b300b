"""What the scenario's nodes share: the logs and tables, what is in them, and what is said beside MQTT."""

from __future__ import annotations

from functools import cache

import msgspec

from tocsin.core.machine import ReadLog
from tocsin.model.catalogue import Channel, Parameter
from tocsin.model.message import Message
from tocsin.model.results import SUBSCRIPTIONS as SUBSCRIPTIONS_NAME
from tocsin.model.results import k_of
from tocsin.ports import READ_MAX, Entry, LogSpec, TableSpec
from tocsin.sim.scenarios.durable.wire import NETWORK, Packet

NOTICES = LogSpec("notices", (f"{NETWORK}.notices",))
FILES = LogSpec(
    "files", (f"{NETWORK}.files.>",)
)  # the results dataset: what is appended at once is one commit
SUBSCRIPTIONS = TableSpec(SUBSCRIPTIONS_NAME)
CHANNEL = Channel("Near", (Parameter("who", "STRING"),), (), "")


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A result."""

    ordinal: int
    k: str
    critical: bool = False


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A file: a tick's results for one broker."""

    tick: int
    seen: int  # the revision of the table of subscriptions that the tick knew
    broker: str
    rows: tuple[Row, ...]


class Notice(msgspec.Struct, frozen=True, array_like=True):
    tick: int
    seen: int
    brokers: tuple[str, ...]  # for which there are files


_parts = msgspec.msgpack.Decoder(Part)
_notices = msgspec.msgpack.Decoder(Notice)


def part_of(entry: Entry) -> Part:
    return _parts.decode(entry.payload)


def notice_of(entry: Entry) -> Notice:
    return _notices.decode(entry.payload)


def files_subject(tick: int) -> str:
    return f"{NETWORK}.files.{tick}"


def read_files(tick: int) -> ReadLog:
    """Read a tick's files. They are in a dataset, of which there is no old news."""
    subject = files_subject(tick)
    return ReadLog(request="files", log=FILES.name, subject=subject, start=0, limit=READ_MAX, fresh=True)


@cache
def meant_by(name: str) -> str:
    """The k of a subscription of this scenario."""
    return k_of(CHANNEL.name, (name.rsplit("/", 1)[1],))


class Unsubscribe(Packet, frozen=True):
    topic_filter: str


class Unsuback(Packet, frozen=True):
    topic_filter: str


class Told(Message, frozen=True):
    """A broker tells another of a session: look for yourself."""

    session: str
    client: str
