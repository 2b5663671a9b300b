"""What ``tocsin explain route`` shows: where the messages of a topic go, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from tocsin.cli.layout import printable
from tocsin.config import Settings
from tocsin.coordinator.reading import read_state
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.explaining import Explained, Leg, explain_route
from tocsin.core.coordination.state.state import State
from tocsin.core.quality.ways import BASE, STRAIGHT, TWIN
from tocsin.errors import OperatorError, TocsinError
from tocsin.model.versions import UNREADABLE
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.wire.internal.quality import WAYS_ANSWER, ShownWays, ways_subject
from tocsin.wire.mqtt.topics import TopicInvalid, check_topic

JsonOption = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
ANSWER_S: Final = 3.0
NAMED_MAX = 20  # brokers that a refusal names


Ways = tuple[ShownWays, ...] | None  # None: the broker does not answer


async def read_route(settings: Settings, topic: str, broker: str) -> tuple[Explained, Ways]:
    """Ask the store, and the broker which second ways it has. ``OperatorError`` for a topic or a broker that cannot
    be."""
    checked(topic)
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin explain route")
    try:
        found = explained(await read_state(store, StoreNames(settings.network)), topic, broker)
        return found, await _ways(store, settings.network, topic, broker)
    finally:
        await store.close()


async def _ways(store: JetStreamStore, network: str, topic: str, broker: str) -> Ways:
    subject = ways_subject(network, broker)
    try:
        answer = await store.bus.request(subject, topic.encode(), deadline_s=ANSWER_S)
        return WAYS_ANSWER.read(answer).rows
    except (TocsinError, *UNREADABLE):
        return None


def as_json(found: Explained, ways: Ways) -> bytes:
    """The same for programs; ``ways`` is null if the broker does not answer."""
    return msgspec.json.format(msgspec.json.encode(msgspec.to_builtins(found) | {"ways": ways}), indent=2)


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


def show(out: Console, found: Explained, ways: Ways) -> None:
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
    if ways is None:
        lines.append(f"  whether copies take other ways is not known: {found.broker} does not answer")
    for each in ways or ():
        lines += _second_ways(each)
    for line in lines:
        out.print(printable(line), soft_wrap=True)


def _second_ways(shown: ShownWays) -> list[str]:
    """A topic's ways to one destination: what is expected of them, and what was seen."""
    over = f"over {shown.over}" if shown.over else "straight"
    lines = [f"  within {_ms(shown.budget_us)} to {shown.destination}:"]
    for way in shown.ways:
        name = f"the usual way, {over}" if way.way == BASE else _NAMED.get(way.way, f"over {way.way}")
        taken = "taken" if way.taken else "not taken"
        took = f"{_ms(way.least_us)} at least, {_ms(way.p99_us)} at most for 99 of 100"
        lines.append(f"    {name}: {taken}; {took}; {way.miss:.2%} expected late")
    expected = (
        f"    expected late: {shown.expected:.3%} of the messages; by the usual way alone {shown.alone:.3%}"
    )
    lines.append(expected + (f" ({shown.reason})" if shown.reason else ""))
    if (seen := shown.seen) is not None:
        missed = seen.missed / max(1, seen.came)
        lines.append(
            f"    seen there: {seen.came} messages, {seen.missed} of them missed ({missed:.3%}); "
            f"of {seen.ahead} a copy came first, {seen.repeated} repeats were dropped"
        )
    return lines


_NAMED = {STRAIGHT: "an extra connection straight to it", TWIN: "a twin of the straight connection"}


def _ms(us: int) -> str:
    return f"{us / 1_000:g} ms"


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
