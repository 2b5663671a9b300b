"""Quality of service beyond MQTT's: what a publisher offers, and what a subscriber requests.

The policies are those of DDS, and so is the comparison (``core.quality.matching``). Durations are in microseconds; None
means that nothing is said of a policy.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec


class Reliability(IntEnum):
    """Whether messages may be lost."""

    BEST_EFFORT = 0
    RELIABLE = 1


class Durability(IntEnum):
    """What becomes of a message that was published before somebody subscribed; each kind includes those before it."""

    VOLATILE = 0
    TRANSIENT_LOCAL = 1
    TRANSIENT = 2
    PERSISTENT = 3


class Liveliness(IntEnum):
    """Who says that a publisher is alive; the second is stricter."""

    AUTOMATIC = 0  # its connection
    MANUAL = 1  # its messages on the topic


class Ownership(IntEnum):
    """Whether all publishers of a topic are heard, or only the strongest of those that are alive."""

    SHARED = 0
    EXCLUSIVE = 1


EVERYTHING: Final = 0  # in the place of a number of messages


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher says of its stream."""

    reliability: Reliability | None = None
    durability: Durability | None = None
    deadline_us: int | None = None  # at the latest so long after one message comes the next
    budget_us: int | None = None  # how long a message may be under way
    lifespan_us: int | None = None  # how long a message is of use
    liveliness: Liveliness | None = None
    lease_us: int | None = None  # after so long without a sign of life the publisher counts as gone
    ownership: Ownership | None = None
    strength: int | None = None  # of ownership
    partition: tuple[str, ...] = ()
    history: int | None = (
        None  # messages of a topic that its broker keeps at QoS 0; EVERYTHING: as many as it may
    )


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscriber wants of the streams that it subscribes to."""

    reliability: Reliability | None = None
    durability: Durability | None = None
    deadline_us: int | None = None
    budget_us: int | None = None
    liveliness: Liveliness | None = None
    lease_us: int | None = None
    ownership: Ownership | None = None
    partition: tuple[str, ...] = ()
    separation_us: int | None = None  # at least so long between two messages of one topic
    where: str | None = None  # a predicate over the fields of a JSON payload, in canonical form
    history: int | None = (
        None  # messages of each topic from before the subscription; EVERYTHING: all that there are
    )
    strict: bool = False  # refuse the subscription if a stream that is there already does not offer as much


class LifeState(IntEnum):
    """What has become of a publisher."""

    ALIVE = 0
    LOST = 1
    LEFT = 2


class Life(msgspec.Struct, frozen=True, array_like=True):
    """What a broker says of one publisher on one topic."""

    topic: str
    client: str
    epoch: int  # of the client's connection
    lease_us: int
    state: LifeState


class Flow(msgspec.Struct, frozen=True, array_like=True):
    """What one connection publishes on one topic."""

    topic: str
    client: str
    epoch: int  # when it began, by its broker: no two of one broker have the same
    broker: str
