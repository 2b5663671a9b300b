"""Standing in for a broker that is gone: wills, and who is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tocsin.broker.delivery.wills import Wills
from tocsin.broker.survival.takeover import Takeovers
from tocsin.core.replication.gamma import ClientSnapshot, Left
from tocsin.core.survival.takeover import AWAITED_US, TakeoverMachine
from tocsin.model.publication import Publication
from tocsin.wire.internal.replication import Bequest, Head, Positions

WILL = Publication("gone", b"x", 0, "c")


def standing(client: str, *, connected: bool = True, will: bool = False, delay_s: int = 0) -> ClientSnapshot:
    bequest = Bequest(WILL, delay_s) if will else None
    return ClientSnapshot(client, Head(connected, will=bequest), {}, Positions())


def broken(error: BaseException) -> None:
    raise error


class Broker:
    def __init__(self, *copy: ClientSnapshot, grace_s: int = 30) -> None:
        self.now = 0
        self.published: list[Publication] = []
        self.here: set[str] = set()
        self.connected: set[tuple[str, str]] = set()  # (broker, client), by what copies say now
        self.kept: set[str] = set()
        self.mourned: list[str] = []
        self._copy = copy
        self.aloud: list[Publication] = []
        machine = TakeoverMachine(self, grace_s)
        self.wills = Wills(self._publish, failed=broken, aloud=self._say_aloud, alive=machine.is_alive)
        self.standing = Takeovers(machine, self, self.wills, failed=broken, clock=lambda: self.now)

    def _publish(self, will: Bequest, told: Callable[[], None]) -> None:
        self.published.append(will.publication)
        told()

    def _say_aloud(self, will: Bequest, told: Callable[[], None]) -> None:
        self.aloud.append(will.publication)
        told()

    def take_over(self, primary: str, *, meanwhile: bool) -> tuple[ClientSnapshot, ...]:
        self.kept.add(primary)
        return self._copy

    def release(self, primary: str) -> None:
        self.kept.remove(primary)

    def mourn(self, primary: str) -> None:
        self.mourned.append(primary)

    def has(self, primary: str, client: str) -> bool:
        return (primary, client) in self.connected

    def settled(self, primary: str, client: str) -> bool:
        return False

    def is_here(self, client: str, owner: str) -> bool:
        return client in self.here


async def test_clients_are_awaited_until_they_come_somewhere() -> None:
    broker = Broker(standing("a"), standing("b"), standing("away", connected=False), standing("here"))
    broker.here.add("here")
    broker.standing.stand_in("gone", 3)
    assert broker.standing.statistics() == {"standing_in": 1, "awaited": 2, "recovered": 0}
    broker.standing.stand_in("gone", 3)
    broker.standing.came("a", "z")
    broker.standing.came("a", "z")
    broker.standing.came("stranger", "z")
    broker.standing.came("b", "z")
    assert broker.standing.statistics() == {"standing_in": 1, "awaited": 0, "recovered": 2}
    broker.standing.stand_down("gone")
    broker.standing.stand_down("gone")
    assert broker.standing.brokers == () and not broker.kept


async def test_who_never_comes_is_not_awaited_for_ever() -> None:
    broker = Broker(standing("a"))
    broker.standing.stand_in("gone", 1)
    broker.now = AWAITED_US + 1
    assert broker.standing.statistics()["awaited"] == 0
    broker.standing.came("a", "z")
    assert broker.standing.statistics()["recovered"] == 0


async def test_a_will_waits_for_its_delay_and_at_least_a_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(
        standing("a", will=True),
        standing("b", will=True, delay_s=90),
        standing("c", connected=False, will=True),
        standing("d"),
    )
    waits: list[tuple[str, int]] = []
    monkeypatch.setattr(
        broker.wills, "delay", lambda client, publication, delay_s, **how: waits.append((client, delay_s))
    )
    broker.standing.stand_in("gone", 1)
    assert waits == [("a", 30), ("b", 90), ("c", 30)]


@pytest.mark.parametrize("fate", ["nobody comes", "it comes", "restarted", "was cut off"])
async def test_a_will_is_published_unless_its_client_lives(fate: str) -> None:
    broker = Broker(standing("a", will=True), grace_s=0)
    broker.standing.stand_in("gone", 1)
    if fate == "it comes":
        broker.standing.came("a", "z")
        broker.wills.came("a", back=False)
    elif fate in ("restarted", "was cut off"):
        broker.standing.stand_down("gone")
    if fate == "was cut off":
        broker.connected.add(("gone", "a"))
    async with asyncio.timeout(10):
        while len(broker.wills):
            await asyncio.sleep(0)
    assert broker.published == ([WILL] if fate in ("nobody comes", "restarted") else [])


async def settled(broker: Broker) -> None:
    async with asyncio.timeout(10):
        while len(broker.wills):
            await asyncio.sleep(0)


async def test_what_is_published_meanwhile_goes_into_no_log() -> None:
    broker = Broker(standing("a", will=True), grace_s=0)
    broker.standing.stand_in("gone")
    await settled(broker)
    assert broker.aloud == [WILL] and broker.published == []


async def test_a_leader_that_says_so_too_has_the_will_published_once() -> None:
    broker = Broker(standing("a", will=True), grace_s=0)
    broker.standing.stand_in("gone")
    broker.standing.stand_in("gone", 4)
    broker.standing.stand_down("gone", meanwhile=True)
    assert broker.standing.brokers == ("gone",)
    await settled(broker)
    assert broker.aloud == [] and broker.published == [WILL]


async def test_wills_of_a_broker_that_was_never_missed_are_published() -> None:
    broker = Broker(grace_s=0)
    broker.here.add("here")
    broker.standing.restarted("back", (Left("a", Bequest(WILL), 0), Left("here", Bequest(WILL), 0)))
    await settled(broker)
    assert broker.published == [WILL]


async def test_a_client_that_came_back_to_such_a_broker_is_alive() -> None:
    broker = Broker(grace_s=0)
    broker.standing.restarted("back", (Left("a", Bequest(WILL), 0),))
    broker.connected.add(("back", "a"))
    await settled(broker)
    assert broker.published == []
