"""Endpoints of Dust DDS, another vendor's, for tests of the bridge."""

from dataclasses import dataclass
from typing import Any

import dust_dds as dust

TENTH: Any = dust.DurationKind.Finite(dust.Duration(sec=0, nanosec=100_000_000))


@dataclass
class Reading:
    """A type without a key, of what Dust's Python interface can read."""

    number: dust.TypeKind.uint32  # type: ignore[valid-type]
    text: str


class DustLan:
    """One domain, as Dust DDS sees it."""

    def __init__(self, domain: int) -> None:
        self._factory = dust.DomainParticipantFactory.get_instance()
        self._participant: Any = self._factory.create_participant(domain_id=domain)

    def writer(self, name: str) -> Any:
        topic = self._participant.create_topic(topic_name=name, type_=Reading)
        return self._participant.create_publisher().create_datawriter(topic)

    def reader(self, name: str) -> Any:
        topic = self._participant.create_topic(topic_name=name, type_=Reading)
        kind: Any = dust.ReliabilityQosPolicyKind.Reliable  # the stubs say that it is a number
        qos = dust.DataReaderQos(reliability=dust.ReliabilityQosPolicy(kind, TENTH))
        return self._participant.create_subscriber().create_datareader(topic, qos=qos)

    def close(self) -> None:
        self._participant.delete_contained_entities()
        self._factory.delete_participant(self._participant)


def taken(reader: Any) -> int:
    """How many samples a reader had. Their fields are not read: Dust's Python interface leaves them out."""
    try:
        return len(reader.take(1_000))
    except Exception:  # there were none: its interface has no exception of its own for that
        return 0
