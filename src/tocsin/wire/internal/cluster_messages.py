"""Gossip between brokers of one cluster, over their links, while one of them hears no leader (MessagePack).

Words may be lost, and are followed by others. A word is for one broker. It names the brokers that its sender hears, and
the filters of the sender's clients (**wants**): the changes that the recipient has not acknowledged. A **run** names
one such time of one broker, and no other; versions count the changes of wants in it.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tocsin.model.network import Message
from tocsin.model.versions import Packed

BROKERS_MAX: Final = 256  # that a word may name in one list
SLICE: Final = 1_000  # wants in one word: some 50 kB
NAME_MAX: Final = 300  # characters of a broker's id

Number = Annotated[int, Meta(ge=0)]
Name = Annotated[str, Meta(max_length=NAME_MAX)]
Names = Annotated[tuple[Name, ...], Meta(max_length=BROKERS_MAX)]
Want = tuple[Number, str, bool]  # the version that it made, the filter, and whether it is wanted


class ClusterMessage(Message, frozen=True, array_like=True, tag="W"):
    """Broker → broker of the same cluster."""

    sender: Name
    series: Number
    number: Number  # counts the words of a run to one broker
    severed: bool  # it hears no leader
    hears: Names = ()  # the brokers of the cluster whose words it hears
    backs: Names = ()  # those of whose clients it has copies, as their local backup
    # Its decisions, if it is the landmark: lost brokers and their stand-ins; empty if nobody can.
    gone: Annotated[tuple[tuple[Name, Name], ...], Meta(max_length=BROKERS_MAX)] = ()
    known: tuple[Number, Number] = (0, 0)  # of the other's wants: the run, and the version up to which
    base: Number = 0  # ``wants`` are what changed after this version …
    version: Number = 0  # … and this is the newest there is
    wants: Annotated[tuple[Want, ...], Meta(max_length=SLICE)] = ()


CLUSTER_MESSAGE: Final = Packed(
    "a word between brokers", msgspec.msgpack.Decoder(ClusterMessage), spoken=True
)


def encode_cluster_message(word: ClusterMessage) -> bytes:
    return CLUSTER_MESSAGE.write(word)


def decode_cluster_message(data: bytes) -> ClusterMessage:
    """Decode a word; anything else raises ``Malformed``."""
    return CLUSTER_MESSAGE.read(data)
