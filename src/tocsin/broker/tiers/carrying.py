"""The shell of ``core.tiers.ways``: fences over links, and messages that wait for another way.

The forwarding table asks the machine itself, topic by topic. What follows from news comes here: topics are resolved
anew, held messages go, and what waits for a link that broke takes the deputy's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from tocsin.broker.client import Client
from tocsin.broker.forwarding.fanout import Outbox, Outlet
from tocsin.broker.links.link import Link
from tocsin.broker.tiers.held import HeldSlot, HeldSlots
from tocsin.core.forwarding.table import Fanout, ForwardingTable
from tocsin.core.machine import Effect
from tocsin.core.tiers.measuring import LoadMeter, Measured
from tocsin.core.tiers.slots import NOBODY, Slots, is_gate
from tocsin.core.tiers.ways import Fence, LinkSeen, Passed, TiersKnown, TierWays, WaysChanged, held_name
from tocsin.runtime.machines.clock import now_us
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Failed

AT_ONCE: Final = 2_000  # topics that are counted: some milliseconds of the loop


class Carrying:
    """Sends over tiers. ``links`` are this broker's, by peer; ``lost`` is told how many messages were
    dropped; ``counts_ends``: where messages come from and go to is counted as well."""

    def __init__(
        self,
        own: str,
        table: ForwardingTable[Client],
        outbox: Outbox,
        links: Mapping[str, Link],
        *,
        held_max_bytes: int,
        lost: Callable[[int], None],
        failed: Failed,
        counts_ends: bool = False,
    ) -> None:
        self.machine = table.ways = TierWays(own)
        self._own = own
        self._table = table
        self._outbox = outbox
        self._links = links
        self._lost = lost
        self._held = HeldSlots(held_max_bytes, lost)
        self._nowhere = HeldSlot(lambda data, messages: lost(messages))
        self._meter = LoadMeter(self._cluster_of, now_us(), ends=counts_ends)
        self._tiers: Mapping[str, Slots] = {}
        self._shell = Shell(self.machine, self._carry_out, failed)

    @property
    def tiers(self) -> Mapping[str, Slots]:
        """The tiers that this broker knows."""
        return self._tiers

    def know(self, tiers: Mapping[str, Slots], lost: Collection[str]) -> None:
        """These are the tiers; there is a link to each member that routes lead to. Those brokers are declared lost."""
        if tiers != self._tiers:
            self._tiers = dict(tiers)
            self._meter.apart = frozenset[str]().union(*(slots.apart for slots in tiers.values()))
            self._shell.post(TiersKnown(tiers=tiers, lost=frozenset(lost), cause=f"{self._own}:tiers"))

    def link_seen(self, peer: str, up: bool) -> None:
        """A link has come up, or is down."""
        self._shell.post(LinkSeen(peer=peer, up=up, cause=f"{self._own}:link to {peer}"))

    def outlet(self, name: str) -> Outlet:
        """Where the messages of a held slot go. What is for a broker to which there is no link is lost."""
        return self._held.outlet(name) if is_gate(name) else self._nowhere

    def count(
        self,
        fanout: Fanout[Client],
        topic: str,
        cluster: str,
        onward: Sequence[str],
        messages: int,
        size: int,
    ) -> None:
        """Messages from another cluster, or of this one's to carry, go on to these peers."""
        carried = fanout.carried
        if carried is None:
            carried = fanout.carried = self._meter.carried(topic)
        carried.add(cluster, onward, messages, size)

    async def measured(self) -> Measured | None:
        """What was carried in the window that is over; None while it is not."""
        for _ in self._meter.settle(AT_ONCE):
            await asyncio.sleep(0)
        return self._meter.look(now_us())

    def close(self) -> None:
        """Nothing moves any more."""
        self._shell.close()

    def statistics(self) -> dict[str, int]:
        return {
            "slots_held": self.machine.held,
            "slots_moved": self.machine.moves,
            "slots_failed_over": self.machine.failovers,
        }

    # ── what the machine wants done ─────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case WaysChanged(released=released, left=left):
                self._outbox.flush()  # what this tick has for the ways before
                self._table.forget()
                for tier, what in released:
                    to, _ = self.machine.place(tier, what)
                    for frames, messages in self._held.take(held_name((tier, what))):
                        self._send(to, frames, messages)
                for peer in left:
                    self._redirect(peer)
            case Fence(peer=peer, ticket=ticket):
                passed = Passed(ticket=ticket, cause=effect.cause)
                link = self._links.get(peer)
                if link is None:
                    self._shell.post(passed)
                else:
                    link.fence(lambda: self._shell.post(passed))
            case _:
                self._shell.carry_out(effect)

    def _send(self, to: str, frames: bytes, messages: int) -> None:
        link = self._links.get(to)
        if link is None:
            self._lost(messages)
        else:
            link.deliver(frames, messages)

    def _redirect(self, peer: str) -> None:
        """What waits for a broker that was to carry it goes over others, as far as these are known."""
        link = self._links.get(peer)
        if link is None:
            return
        tiers = [tier for tier, slots in self._tiers.items() if peer in slots.members]

        def elsewhere(topic: str) -> bool:
            return not topic.startswith("$") and self._way(tiers, topic) not in (peer, NOBODY)

        for topic, frame in tuple(link.take_waiting(elsewhere)):
            way = self._way(tiers, topic)
            if is_gate(way):
                self._held.outlet(way).deliver(frame, 1)
            else:
                self._send(way, frame, 1)

    def _cluster_of(self, peer: str) -> str:
        link = self._links.get(peer)
        return "" if link is None else link.info.cluster

    def _way(self, tiers: list[str], topic: str) -> str:
        """Over whom a message goes now. A routing broker is in one tier, and was sent this to carry it."""
        return next((way for tier in tiers if (way := self.machine.way(tier, topic))), NOBODY)
