"""Rerouting: which links between brokers are cut, how far brokers are from each other, and which detours to use.

Brokers say of their links what they see (``wire.internal.control.Links``). That is not in the log: a leader that takes
over has it from each broker at its first beat, and until it has heard a broker it leaves that broker's rows as they
are.

    a broker calls a link cut, to a broker that is there
        ──► both ends and their neighbours are asked to measure (``Measure``), and nobody else
        ──► REFRESH_US later the best way around (``core.links.detour``) is chosen, and said in the log (``Rerouted``)
    a link of that way is cut, or a relay is gone ──► the next best
    the broker no longer calls it cut ──► the row ends

A way is kept while it can be used, though another be shorter by now: to change it is to risk the order of messages.

A routing broker is **deaf** if all that send over it into other clusters call their links to it cut, and nothing that
they send comes to it: nobody has told of a link to it that works; or only brokers have that do not send over it, as
those of its own cluster, and no way leads over them. At least two have to call it cut, or all others. Then others carry
its cluster's traffic (``Shunned``). A broker that reports the link as cut goes on trying, while another would drop a
link that it needs no more: so all senders have to report it, and a sender that joins later is told to try as well, by a
row without a path. It is a hub again when one of them reaches it.

No broker counts as lost for any of this; ``broker_watch`` alone decides whether a broker is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tocsin.core.coordination.state.detours import Around
from tocsin.core.coordination.state.state import State
from tocsin.core.links.detour import Way, cost_us, detour
from tocsin.core.links.distances import Distances
from tocsin.core.machine import Effect, Say, Send
from tocsin.model.network import Role, broker_address
from tocsin.wire.internal.commands import Rerouted, Shunned
from tocsin.wire.internal.control import Links, Measure

REFRESH_US: Final = 300_000  # for those around a failure to measure and to tell
AROUND_MAX: Final = 32  # brokers that are asked to measure for one cut link: the nearest
DEAF_LEAST: Final = 2  # brokers that do not reach a hub, before it is for the hub's sake

Pair = tuple[str, str]


class Rerouting:
    """Chooses the detours around broken links, for one leader."""

    def __init__(self, state: State) -> None:
        self.distances = Distances()
        self._state = state
        self._cut: dict[str, frozenset[str]] = {}  # broker → its links that are cut; of those that were heard
        self._ripe_us: dict[Pair, int] = {}  # cut links → when a way around is chosen

    # ── what brokers say ────────────────────────────────────────────────────────────────────────────────────

    def hear(self, said: Links, now_us: int) -> list[Effect]:
        """Take a member's report of its links; return the brokers to ask about theirs."""
        broker, before = said.broker, self._cut.get(said.broker, frozenset())
        self._know_brokers()
        self.distances.tell(broker, dict(said.delays))
        self._cut[broker] = frozenset(said.cut) - {broker}
        members = self._state.members
        fresh = sorted(peer for peer in self._cut[broker] - before if peer in members)
        asked: dict[str, None] = {}
        for peer in fresh:
            known = self._state.detours.around(broker).get(peer)
            self._ripe_us[broker, peer] = now_us + (0 if known else REFRESH_US)
            if not known:
                asked.update(dict.fromkeys(self._around(broker, peer)))
        return [
            Send(
                to=broker_address(each),
                message=Measure(self._state.epoch, members[each].incarnation),
            )
            for each in asked
        ]

    def _know_brokers(self) -> None:
        members = self._state.members
        self.distances.set_brokers({broker: member.info.cluster for broker, member in members.items()})
        for broker in [each for each in self._cut if each not in members]:
            del self._cut[broker]

    def _around(self, broker: str, peer: str) -> list[str]:
        """The two ends of a link, and those that have a link with either, the nearest first."""
        near = self.distances.neighbours(broker) | self.distances.neighbours(peer)
        near = {each for each in near if each in self._state.members} - {broker, peer}

        def distance(each: str) -> tuple[int, str]:
            return self.distances.between(broker, each).us + self.distances.between(each, peer).us, each

        return [broker, peer, *sorted(near, key=distance)[: AROUND_MAX - 2]]

    # ── what follows ────────────────────────────────────────────────────────────────────────────────────────

    def look(self, now_us: int) -> tuple[list[Rerouted | Shunned], list[Effect]]:
        """The commands for the log, and the log lines about them."""
        state = self._state
        if not (state.detours or state.interest.plan.shunned or any(self._cut.values())):
            return [], []
        self._know_brokers()
        cut = {
            (broker, peer) for broker, peers in self._cut.items() for peer in peers if peer in state.members
        }
        self._ripe_us = {pair: self._ripe_us.get(pair, now_us) for pair in cut}
        said: list[Effect] = []
        commands: list[Rerouted | Shunned] = []
        trials = self._trials()
        heard = {each: trials.get(each, {}) | self._rows(each, cut, now_us) for each in sorted(self._cut)}
        for broker, after in heard.items():
            before = state.detours.around(broker)
            if before != after:
                commands.append(Rerouted(broker, tuple(sorted(after.items()))))
                said += _differences(broker, before, after, state)
        deaf = self._deaf({**state.detours.rows, **heard}, cut)
        if deaf != state.interest.plan.shunned:
            commands.append(Shunned(tuple(sorted(deaf))))
            text, facts = "routing brokers that other clusters do not reach", {"brokers": sorted(deaf)}
            said.append(Say(level="warning", text=text, facts=facts))
        return commands, said

    def _rows(self, broker: str, cut: set[Pair], now_us: int) -> dict[str, Way]:
        known = self._state.detours.around(broker)
        rows: dict[str, Way] = {}
        for peer in sorted(peer for source, peer in cut if source == broker):
            before = known.get(peer)
            if now_us < self._ripe_us[broker, peer]:
                if before is not None:
                    rows[peer] = before
            elif before and self._works(broker, peer, before, cut):
                rows[peer] = before
            else:
                rows[peer] = detour(broker, peer, self._able(), self.distances, cut) or ()
        return rows

    def _works(self, broker: str, peer: str, relays: Way, cut: set[Pair]) -> bool:
        there = all(each in self._state.members for each in relays)
        return there and cost_us((broker, *relays, peer), self.distances, cut) is not None

    def _able(self) -> list[str]:
        members = self._state.members.items()
        return [broker for broker, member in members if member.info.role is not Role.STANDBY]

    def _deaf(self, rows: Mapping[str, Around], cut: set[Pair]) -> frozenset[str]:
        hubs = [each for each, member in self._state.members.items() if member.info.role is Role.ROUTING]
        kept = self._state.interest.plan.shunned if self._unheard() else frozenset[str]()
        return frozenset(hub for hub in hubs if hub in kept or self._is_deaf(hub, rows, cut))

    def _is_deaf(self, hub: str, rows: Mapping[str, Around], cut: set[Pair]) -> bool:
        """``rows`` are as they will be. A cut link without a path may still get one; a broker that was not heard, and
        has a path, counts as reporting the cut: the log stays in force.
        """
        members = self._state.members
        without = {broker for broker, peer in cut if peer == hub}
        without |= {broker for broker, around in rows.items() if hub in around and broker not in self._cut}
        if not without or len(without) < min(DEAF_LEAST, len(members) - 1):
            return False
        users = self._users(hub)
        if hub not in self._state.interest.plan.shunned and not (users and users <= without):
            return False
        reaching = {each for each in members if each != hub and self.distances.reaches(each, hub)}
        if not reaching:
            return True
        stranded = users & without
        if not stranded or users & reaching:
            return False
        return all(rows[each].get(hub) == () for each in stranded)

    def _users(self, hub: str) -> set[str]:
        """The brokers that send over it into other clusters, or would if it were not left out."""
        return self._state.interest.plan.users(hub) & {*self._able()}

    def _trials(self) -> dict[str, dict[str, Way]]:
        """Brokers → the routing brokers that are left out, and that they would send over: they are to try."""
        trials: dict[str, dict[str, Way]] = {}
        for hub in self._state.interest.plan.shunned & self._state.members.keys():
            for broker in self._users(hub):
                if not self.distances.reaches(broker, hub):
                    trials.setdefault(broker, {})[hub] = ()
        return trials

    def _unheard(self) -> bool:
        """Whether some broker has not reported its links to this leader; then the log stays in force."""
        return any(broker not in self._cut for broker in self._state.members)


def _differences(broker: str, before: Around, after: Around, state: State) -> list[Effect]:
    said: list[Effect] = []
    for peer in sorted({*before, *after}):
        facts: dict[str, object] = {"broker": broker, "peer": peer}
        if peer not in after:
            text = "a link between brokers is back" if peer in state.members else "a link that was cut ended"
            said.append(Say(text=text, facts=facts))
        elif before.get(peer) != after[peer]:
            facts["via"] = list(after[peer])
            text = "a link between brokers is cut; its messages go around"
            if not after[peer]:
                text = "a link between brokers is cut, and there is no way around"
            if peer in state.interest.plan.shunned:
                text = "a link to a routing broker that is left out is tried"
            said.append(Say(level="warning", text=text, facts=facts))
    return said


def told(state: State) -> list[tuple[str, str, tuple[str, ...]]]:
    """The links that are cut and the ways around them, as the log says: (broker, peer, relays)."""
    rows: Mapping[str, Around] = state.detours.rows
    return [(broker, peer, way) for broker in sorted(rows) for peer, way in rows[broker].items()]
