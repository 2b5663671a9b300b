"""What ``tocsin explain route`` shows: where the messages of a topic go, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console

from tocsin.cli.layout import printable
from tocsin.config import Settings
from tocsin.coordinator.reading import read_state
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.explaining import Explained, Leg, explain_route
from tocsin.core.coordination.state.state import State
from tocsin.errors import OperatorError
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.wire.mqtt.topics import TopicInvalid, check_topic

JsonOption = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
NAMED_MAX = 20  # brokers that a refusal names


async def read_route(settings: Settings, topic: str, broker: str) -> Explained:
    """Ask the store. ``OperatorError`` for a topic or a broker that cannot be."""
    checked(topic)
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin explain route")
    try:
        return explained(await read_state(store, StoreNames(settings.network)), topic, broker)
    finally:
        await store.close()


def checked(topic: str) -> None:
    """``OperatorError`` if nobody can publish to this topic."""
    try:
        check_topic(topic)
    except TopicInvalid as error:
        raise OperatorError(str(error), "Give a topic as publishers have it, without wildcards") from None


def explained(state: State, topic: str, broker: str) -> Explained:
    known = sorted(state.members)
    if broker not in known:
        more = f" … ({len(known)} in all)" if len(known) > NAMED_MAX else ""
        raise OperatorError(
            f"the broker {broker!r} is not in the network now",
            f"Name one of {', '.join(known[:NAMED_MAX])}{more}" if known else "Start brokers first",
        )
    return explain_route(state, topic, broker)


def show(out: Console, found: Explained) -> None:
    """Lines for people."""
    lines = [f"{found.topic}, published at {found.broker} (cluster {found.cluster}): slot {found.slot}"]
    if found.here:
        lines.append(f"  to clients here: {', '.join(found.here)}")
    lines += [f"  straight to {_leg(each)}" for each in found.straight]
    for over in found.over:
        deputy = f"deputy {over.deputy}" if over.deputy else "no deputy"
        if over.apart:
            lines.append(f"  apart from its slot in tier {over.tier}, as it brings very much")
        lines.append(f"  over tier {over.tier}: carrier {over.carrier}, {deputy}{_around(over.around)}")
        lines += [f"    on to {_leg(each)}" for each in over.onward]
    if not (found.here or found.straight or found.over):
        lines.append("  nobody wants it")
    for line in lines:
        out.print(printable(line), soft_wrap=True)


def _leg(leg: Leg) -> str:
    return f"{leg.broker}{_around(leg.around)}: {_listed(leg.filters)}"


def _listed(filters: Iterable[str]) -> str:
    return ", ".join(filters)


def _around(relays: tuple[str, ...] | None) -> str:
    if relays is None:
        return ""
    return (
        f" (the link is cut; over {', '.join(relays)})"
        if relays
        else " (the link is cut, and there is no way around)"
    )
