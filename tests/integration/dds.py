"""DDS endpoints of this process, for tests of the bridge: types, and readers and writers that tests own.

cyclonedds reads the annotations of types when it needs them, so that they cannot be texts.
"""

import ctypes
import os
from dataclasses import dataclass, field
from typing import Any

LOOPBACK = (
    "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name='lo' multicast='true'/></Interfaces>"
    "</General></Domain></CycloneDDS>"
)
os.environ["CYCLONEDDS_URI"] = LOOPBACK  # before the first participant of this process, and for the bridges

from cyclonedds.domain import DomainParticipant  # noqa: E402
from cyclonedds.idl import IdlStruct  # noqa: E402
from cyclonedds.idl.annotations import key  # noqa: E402
from cyclonedds.idl.types import int32, sequence, uint32  # noqa: E402
from cyclonedds.internal import DDS, dds_c_t  # noqa: E402
from cyclonedds.pub import DataWriter, Publisher  # noqa: E402
from cyclonedds.qos import Policy, Qos  # noqa: E402
from cyclonedds.sub import DataReader, Subscriber  # noqa: E402
from cyclonedds.topic import Topic  # noqa: E402

BEST_EFFORT = Qos(Policy.Reliability.BestEffort, Policy.History.KeepAll)
RELIABLE = Qos(Policy.Reliability.Reliable(5_000_000_000), Policy.History.KeepAll)
KEPT = Qos(
    Policy.Reliability.Reliable(5_000_000_000),
    Policy.Durability.TransientLocal,
    Policy.History.KeepLast(3),
    Policy.DurabilityService(0, Policy.History.KeepLast(3), 1_000, -1, -1),
)


def asserted(lease_s: float) -> Qos:
    """Of endpoints whose writers assert their liveliness by hand."""
    by_topic = Policy.Liveliness.ManualByTopic(int(lease_s * 1_000_000_000))
    return Qos(
        Policy.Reliability.Reliable(5_000_000_000),
        Policy.History.KeepAll,
        Policy.WriterDataLifecycle(autodispose=False),
        by_topic,
    )


def owned(strength: int | None = None) -> Qos:
    """Of endpoints with an exclusive owner; of a writer with this strength."""
    policies: list[Any] = [
        Policy.Reliability.Reliable(5_000_000_000),
        Policy.History.KeepAll,
        Policy.Ownership.Exclusive,
    ]
    return Qos(*policies, *([] if strength is None else [Policy.OwnershipStrength(strength)]))


@dataclass
class Square(IdlStruct, typename="shapes.Square"):
    """A keyed type."""

    color: str
    key("color")
    x: int32
    path: sequence[int32] = field(default_factory=list)  # type: ignore[assignment, type-arg]


@dataclass
class Line(IdlStruct, typename="shapes.Line"):
    """A type without a key."""

    text: str


@dataclass
class Reading(IdlStruct, typename="Reading"):
    """The type that endpoints of other vendors have in tests."""

    number: uint32
    text: str


class Lan:
    """One domain: a local network of its own."""

    def __init__(self, domain: int) -> None:
        self.domain = domain
        self.participant: Any = DomainParticipant(domain)

    def writer(self, name: str, kind: Any, qos: Qos = RELIABLE, partition: str = "") -> Any:
        topic = Topic(self.participant, name, kind)
        publisher = Publisher(self.participant, Qos(Policy.Partition([partition])) if partition else None)
        return DataWriter(publisher, topic, qos=qos)

    def reader(self, name: str, kind: Any, qos: Qos = RELIABLE, partition: str = "") -> Any:
        topic = Topic(self.participant, name, kind)
        subscriber = Subscriber(self.participant, Qos(Policy.Partition([partition])) if partition else None)
        return DataReader(subscriber, topic, qos=qos)

    def alive(self, reader: Any) -> int:
        """How many writers of a reader are alive."""
        status = dds_c_t.liveliness_changed_status()
        DDS._dll_handle.dds_get_liveliness_changed_status(reader._ref, ctypes.byref(status))
        return int(status.alive_count)

    def matched(self, writer: Any) -> int:
        """How many readers a writer has."""
        return int(writer.get_publication_matched_status().current_count)

    def end(self, endpoint: Any) -> None:
        """End an endpoint now, and not when nobody refers to it any more."""
        endpoint.__del__()

    def close(self) -> None:
        """End the participant, and with it all that tests made in it, whoever still refers to that."""
        self.participant.__del__()
