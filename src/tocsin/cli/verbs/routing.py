"""``tocsin routing``: who carries what between clusters, and orders about it.

An order is a cell in the coordinators' table (``core.coordination.leader.pinning``), which the leader follows. A slot
is moved once by a pin that goes when the slot is there; then it rests, and the leader may place it again.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from tocsin.cli.layout import console, lay_out, printable
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, network_settings
from tocsin.cli.verbs.explain_route import JsonOption, checked
from tocsin.config import Settings
from tocsin.coordinator.reading import read_state
from tocsin.coordinator.status import Carries, Growing, Status, read_all
from tocsin.core.coordination.leader.balancing import KEY as DRAIN_KEY
from tocsin.core.coordination.leader.balancing import ORDER, Order
from tocsin.core.coordination.leader.pinning import KEY, PIN, Pin, key_of, read_pin
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.explaining import Part, TierShown, carriers_of, tier_of, tiers_of
from tocsin.core.tiers.slots import SLOTS, slot_of
from tocsin.errors import OperatorError
from tocsin.ports import Table
from tocsin.store.jetstream.store import JetStreamStore

app = typer.Typer(help="Show who carries messages between clusters, and choose it.", no_args_is_help=True)
NO_TIER = 1  # the exit code of a network without routing brokers
NOT_YET = 1  # the exit code where a pin is stored, and the slot has not moved
WAIT_S = 10.0
DRAIN_S = 60.0  # two windows in which members measure what they carry, and some time
LOOK_S = 0.3
PLACES = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")  # slots, as an order names them
MemberArgument = Annotated[
    str, typer.Argument(metavar="MEMBER", help="The routing broker that is to carry it.")
]


class Pinned(msgspec.Struct, frozen=True):
    """A slot that a member is to carry."""

    tier: str
    slot: int
    broker: str
    topic: str


@app.callback()
def routing() -> None:
    """Show who carries messages between clusters, and choose it."""


@app.command()
def status(
    json: JsonOption = False, config: ConfigOption = None, sets: SetOption = None, state: StateOption = None
) -> None:
    """Show the tiers: their members, what each carries, and the clusters that they carry for.

        tocsin routing status

        tocsin routing status --json -c tocsin.toml

    A tier has 1,024 slots; a topic is in one by its name. Messages and bytes are a second's, as members have told
    them last. The exit code is 1 if there are no routing brokers: then brokers of all clusters send straight to each
    other.
    """
    tiers, emptied, told, pinned = asyncio.run(_read(network_settings(config, sets, state)))
    carries = {each.broker: each for status in told for each in status.carries}
    growing = {each.tier: each for status in told for each in status.growing}
    if json:
        rows = [
            {
                **msgspec.to_builtins(each),
                "growing": msgspec.to_builtins(growing.get(each.tier)),
                "members": [_as_json(part, carries) for part in each.members],
                "pins": [msgspec.to_builtins(pin) for pin in pinned if pin.tier == each.tier],
            }
            for each in tiers
        ]
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    elif not tiers:
        typer.echo("there are no routing brokers: brokers of all clusters send straight to each other")
    else:
        for each in tiers:
            _show(each, emptied, carries, growing.get(each.tier), pinned)
    raise typer.Exit(0 if tiers else NO_TIER)


@app.command()
def pin(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, as publishers have it.")],
    broker: Annotated[
        str, typer.Argument(metavar="BROKER", help="The routing broker that is to carry it.")
    ] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Let the leader place it again.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Have one routing broker carry a topic, and all others of its slot: for a topic with very much traffic.

        tocsin routing pin line/7 cloud-2

        tocsin routing pin line/7 --undo

    The slot moves without losing a message. It stays there until the pin is undone; while that broker is gone or is
    being emptied (`tocsin drain`), others carry it. The exit code is 1 if it has not moved within ten seconds.
    """
    if undo == bool(broker):
        raise OperatorError(
            "a pin needs a broker, and its undoing none",
            "Write `tocsin routing pin TOPIC BROKER`, or `tocsin routing pin TOPIC --undo`",
        )
    checked(topic)
    said, done = asyncio.run(_pin(network_settings(config, sets, state), topic, broker))
    typer.echo(said)
    raise typer.Exit(0 if done else NOT_YET)


@app.command()
def move(
    what: Annotated[
        str, typer.Argument(metavar="SLOT|TOPIC", help="A slot (7), some (0-511), or a topic in one.")
    ],
    member: MemberArgument,
    topic: Annotated[
        bool, typer.Option("--topic", help="It is a topic, though it looks like slots.")
    ] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Move slots to another routing broker, without losing a message.

        tocsin routing move 807 cloud-2

        tocsin routing move 0-511 cloud-2

        tocsin routing move line/7 cloud-2

    They stay there for a minute at least; after that the leader may move them to balance the load. To have one stay,
    pin it. The exit code is 1 if they have not moved within ten seconds; then nothing is left of the order.
    """
    slots = places(what, topic)
    said, done = asyncio.run(_move(network_settings(config, sets, state), what, slots, member))
    typer.echo(said)
    raise typer.Exit(0 if done else NOT_YET)


@app.command()
def drain(
    member: Annotated[str, typer.Argument(metavar="MEMBER", help="The routing broker to relieve.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let it carry again.")] = False,
    wait: Annotated[
        float,
        typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait until it carries nothing."),
    ] = DRAIN_S,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Relieve a routing broker of everything it carries, before it is stopped or changed.

        tocsin routing drain cloud-2

        tocsin routing drain cloud-2 --undo

    All its slots move to others, without losing a message. It is the same order as `tocsin drain`; this verb waits
    until the broker has told that nothing goes over it any more. The exit code is 1 if that takes longer than `--wait`.
    """
    said, done = asyncio.run(_drain(network_settings(config, sets, state), member, undo, wait))
    typer.echo(said)
    raise typer.Exit(0 if done else NOT_YET)


def places(what: str, topic: bool = False) -> range:
    """The slots that somebody names: a number, two of them, or a topic. ``OperatorError`` if there are none."""
    found = None if topic else PLACES.fullmatch(what)
    if found is None:
        checked(what)
        return range(slot_of(what), slot_of(what) + 1)
    first, last = int(found[1]), int(found[2] or found[1])
    if not first <= last < SLOTS:
        raise OperatorError(
            f"there are no slots {what}", f"Name one from 0 to {SLOTS - 1}, or the first and the last"
        )
    return range(first, last + 1)


async def _move(settings: Settings, what: str, slots: range, member: str) -> tuple[str, bool]:
    names = StoreNames(settings.network)
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin routing move")
    try:
        table = await store.table(names.table)
        tier = tier_of(await read_state(store, names), member)
        kept = {each.slot for each in await _pins(table) if each.tier == tier} & {*slots}
        if kept:
            raise OperatorError(
                f"slot {min(kept)} is pinned",
                "Undo that first: `tocsin routing status` has the topic, `tocsin routing pin TOPIC --undo`",
            )
        keys = [key_of(tier, slot) for slot in slots]
        try:
            for key in keys:
                await table.put(key, PIN.write(Pin(member, what)))
            until = time.monotonic() + WAIT_S
            while True:
                carriers = carriers_of(await read_state(store, names), tier)
                left = sum(carriers[slot : slot + 1] != (member,) for slot in slots)
                if not left or time.monotonic() > until:
                    break
                await asyncio.sleep(LOOK_S)
        finally:
            for key in keys:
                await table.delete(key)
        if left:
            return f"{left} of {len(slots)} slots have not moved: is {member} being emptied?", False
        named = (
            f"{what} (slot {slots[0]} of tier {tier})"
            if len(slots) == 1
            else f"{len(slots)} slots of tier {tier}"
        )
        return f"{member} carries {named}", True
    finally:
        await store.close()


async def _drain(settings: Settings, member: str, undo: bool, wait_s: float) -> tuple[str, bool]:
    names = StoreNames(settings.network)
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin routing drain")
    try:
        table = await store.table(names.table)
        if undo:
            await table.delete(f"{DRAIN_KEY}{member}")
            return f"{member} may carry again", True
        tier = tier_of(await read_state(store, names), member)
        if await table.get(f"{DRAIN_KEY}{member}") is None:
            await table.put(f"{DRAIN_KEY}{member}", ORDER.write(Order(time.time_ns() // 1_000)))
        until = time.monotonic() + wait_s
        while True:
            left = carriers_of(await read_state(store, names), tier).count(member)
            said = [each for status in await read_all(table) for each in status.carries]
            told = next((each for each in said if each.broker == member), None)
            if not left and (told is None or not told.messages_s):
                return f"{member} carries nothing: it can be stopped", True
            if time.monotonic() > until:
                rate = 0 if told is None else told.messages_s
                return f"{member} still carries {left} slots, and {rate:,} messages a second", False
            await asyncio.sleep(LOOK_S)
    finally:
        await store.close()


async def _pin(settings: Settings, topic: str, broker: str) -> tuple[str, bool]:
    names, slot = StoreNames(settings.network), slot_of(topic)
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin routing pin")
    try:
        table = await store.table(names.table)
        if not broker:
            found = [each for each in await _pins(table) if each.slot == slot]
            for each in found:
                await table.delete(key_of(each.tier, slot))
            return (f"{topic} (slot {slot}) is placed by the leader", True)
        tier = tier_of(await read_state(store, names), broker)
        await table.put(key_of(tier, slot), PIN.write(Pin(broker, topic)))
        until = time.monotonic() + WAIT_S
        while True:
            (carrier,) = carriers_of(await read_state(store, names), tier)[slot : slot + 1] or ("nobody",)
            if carrier == broker:
                return f"{broker} carries {topic} (slot {slot} of tier {tier})", True
            if time.monotonic() > until:
                return (
                    f"the pin is stored, and {carrier} still carries {topic}: is {broker} being emptied?",
                    False,
                )
            await asyncio.sleep(LOOK_S)
    finally:
        await store.close()


async def _pins(table: Table) -> list[Pinned]:
    found = []
    for key in sorted(await table.keys(KEY)):
        cell = await table.get(key)
        if cell is not None and (read := read_pin(key, cell.value)) is not None:
            tier, slot, order = read
            found.append(Pinned(tier, slot, order.broker, order.topic))
    return found


async def _read(
    settings: Settings,
) -> tuple[tuple[TierShown, ...], frozenset[str], list[Status], list[Pinned]]:
    names = StoreNames(settings.network)
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin routing status")
    try:
        tiers = tiers_of(await read_state(store, names))
        table = await store.table(names.table)
        told = await read_all(table)
        emptied = frozenset(each.broker for status in told for each in status.draining)
        return tiers, emptied, told, await _pins(table)
    finally:
        await store.close()


def _as_json(part: Part, carries: Mapping[str, Carries]) -> dict[str, object]:
    told = carries.get(part.broker)
    load = None if told is None else {**msgspec.to_builtins(told)}
    if load is not None:
        del load["broker"]
    return {**msgspec.to_builtins(part), "load": load}


def _show(
    tier: TierShown,
    emptied: frozenset[str],
    carries: Mapping[str, Carries],
    growing: Growing | None,
    pinned: list[Pinned],
) -> None:
    out = console()
    out.print(Text(f"tier {tier.tier}", style="bold"), Text(f"carries for {', '.join(tier.clusters)}"))
    rows = [
        [
            *(each.broker, each.cluster, str(each.slots), f"{each.slots / SLOTS:.1%}", str(each.deputy_of)),
            *_load(carries.get(each.broker)),
            _note(each, emptied),
        ]
        for each in tier.members
    ]
    headings = ["member", "cluster", "slots", "part", "deputy of", "messages/s", "kB/s", "busy", ""]
    table = lay_out(headings, rows, [False, False, *[True] * 6, False], out.width)
    if not out.is_terminal:
        table.box = None
    out.print(table)
    if growing is not None:
        heading = (
            ""
            if growing.use is None
            else f": the load is heading for {growing.use:.0%} of what they can carry"
        )
        out.print(printable(f"should have {growing.members} members{heading}"))
        for name in growing.spare:
            out.print(printable(f"{name} carries nothing any more: it can be stopped"))
    for topic, carriers in sorted(tier.apart.items()):
        out.print(printable(f"apart from its slot: {topic}, carried by {', '.join(carriers)}"))
    for each in pinned:
        if each.tier == tier.tier:
            out.print(printable(f"pinned: {each.topic} (slot {each.slot}) to {each.broker}"))


def _load(told: Carries | None) -> tuple[str, str, str]:
    if told is None:
        return "–", "–", "–"
    return f"{told.messages_s:,}", f"{told.bytes_s / 1_000:,.0f}", f"{told.busy:.0%}"


def _note(part: Part, emptied: frozenset[str]) -> str:
    if part.shunned:
        return "not reached by other clusters"
    return "is being emptied" if part.broker in emptied else ""
