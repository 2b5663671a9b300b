"""The links between brokers and their sessions on the bus, as far as detection sees them, played.

A broker that crashes closes its links, and refuses new ones until it is back; the bus does not find it. A broker that
is paused, asleep or cut off does none of that. Besides, links are reset and sessions on the bus end for a moment while
all is well: a reset alone is no reason to miss anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from tocsin.core.coordination.leader.broker_watch import AskPresence, Presence
from tocsin.core.coordination.participant.signals import LinksEnded
from tocsin.core.machine import Received
from tocsin.model.network import Address, broker_address
from tocsin.sim.chance import MILLION
from tocsin.sim.network import STORE
from tocsin.sim.world import World

NOTICED_MAX_US = 20_000  # a peer's kernel says so soon that a link was closed
REDIAL_US = (75_000, 120_000)
ANSWER_US = 300_000  # after which the leader expects no answer to its question
AWAY_US = MILLION // 2  # that a broker's session on the bus may be gone, while it runs


class PlayedLinks:
    """A link from each broker to each other, and the bus. ``resets`` a second happen without a reason."""

    def __init__(self, world: World, brokers: Iterable[str], *, until_us: int = 0) -> None:
        """``until_us``: resets happen until then."""
        self._world = world
        self._brokers = tuple(brokers)
        self._names = {broker_address(each): each for each in self._brokers}
        self._chance = world.chances.of("links")
        self._until_us = until_us
        self._sessionless_us: dict[str, int] = {}  # brokers that the bus does not find → until when
        world.observers.on_happening(self._on_happening)
        world.own(AskPresence, self._ask)
        if until_us:
            self._later(MILLION, 3 * MILLION, self._disturb)

    def _later(self, least_us: int, most_us: int, act: Callable[[], None]) -> None:
        self._world.at(self._world.now_us + self._chance.between(least_us, most_us), act)

    # ── links ───────────────────────────────────────────────────────────────────────────────────────────────

    def _on_happening(self, address: Address, happening: str) -> None:
        broker = self._names.get(address)
        if broker is None or happening not in ("crashed", "stopped"):
            return
        for peer in self._brokers:
            if peer != broker:
                self._later(1, NOTICED_MAX_US, partial(self._end, peer, broker))
                self._later(*REDIAL_US, partial(self._redial, peer, broker))

    def _end(self, peer: str, broker: str) -> None:
        """A peer sees that its link to a broker was closed."""
        if not self._world.network.blocked(broker_address(broker), broker_address(peer)):
            ended = LinksEnded(closed=(broker,), cause=f"{peer}:links")
            self._world.post(broker_address(peer), ended)

    def _redial(self, peer: str, broker: str) -> None:
        away = self._world.machine(broker_address(broker)) is None
        if away and not self._world.network.blocked(broker_address(broker), broker_address(peer)):
            refused = LinksEnded(refused=(broker,), cause=f"{peer}:links")
            self._world.post(broker_address(peer), refused)

    def _disturb(self) -> None:
        """Links are reset though nobody is gone: one, or all of a broker; or one, while the bus has lost a broker."""
        chance, broker = self._chance, self._chance.one_of(self._brokers)
        peers = [each for each in self._brokers if each != broker]
        match chance.below(3):
            case 0:
                self._end(chance.one_of(peers), broker)
            case 1:
                for peer in peers:
                    self._end(peer, broker)
            case _:
                self._sessionless_us[broker] = self._world.now_us + chance.between(1, AWAY_US)
                self._end(chance.one_of(peers), broker)
        if self._world.now_us < self._until_us:
            # No hint outlives this: two resets do not make one loss.
            self._later(2 * MILLION, 4 * MILLION, self._disturb)

    # ── the bus ─────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, leader: Address, effect: AskPresence) -> None:
        world, address = self._world, broker_address(effect.broker)
        trip_us = world.network.delay_us(leader, STORE)
        cut = world.network.blocked(leader, STORE)
        sessionless = world.now_us < self._sessionless_us.get(effect.broker, 0)
        absent = not cut and (world.machine(address) is None or sessionless)
        answer = Presence(broker=effect.broker, absent=absent, cause=effect.cause)
        answer_us = 2 * trip_us if absent else ANSWER_US
        world.at(world.now_us + answer_us, partial(self._post, leader, answer))
        if not absent and not cut and not world.network.blocked(STORE, address):
            asked = Received(sender=leader, message=effect.message, cause=effect.cause)
            at_us = world.now_us + trip_us + world.network.delay_us(STORE, address)
            world.at(at_us, partial(self._post, address, asked))

    def _post(self, address: Address, event: Presence | Received) -> None:
        self._world.post(address, event)
