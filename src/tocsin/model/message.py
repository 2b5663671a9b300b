"""Messages between machines, and their addresses."""

from __future__ import annotations

import msgspec

Address = str  # "coordinator", "broker/north-1": who a message is for

COORDINATOR: Address = "coordinator"  # whichever leads: it alone hears this


def coordinator_address(name: str) -> Address:
    return f"coordinator/{name}"


def broker_address(broker_id: str) -> Address:
    return f"broker/{broker_id}"


class Message(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Base of all control messages. Tagged by class name, so that one union decodes them all."""
