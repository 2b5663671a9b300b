"""Who keeps bytes for too long."""

from __future__ import annotations

import asyncio

import pytest

from tocsin.broker.entrance import overdue
from tocsin.broker.entrance.overdue import PATIENCE_S, Packets, Unread
from tocsin.core.budgets.budget import Bounds, Budget, Kind, Refusal

BUDGET = Bounds(client=40, user=80, broker=120)  # and a quarter more


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Client:
    def __init__(self, budget: Budget, user: str = "") -> None:
        self.account = budget.account(user)
        self.taken = 0
        self.kept_waiting = False
        self.stalls: list[float] = []
        self.dropped: list[Refusal] = []

    def count_outbound(self) -> int:
        return self.taken

    def stalled(self, seconds: float) -> None:
        self.stalls.append(seconds)

    def drop_packets(self, refusal: Refusal) -> None:
        self.account.give_all(Kind.PACKETS)
        self.dropped.append(refusal)


def budget() -> Budget:
    return Budget([BUDGET] * len(Kind))


def test_a_client_that_reads_nothing_is_dropped_and_a_slow_one_stays() -> None:
    clock, both = Clock(), budget()
    unread = Unread(10.0, clock)
    stuck, slow = Client(both), Client(both)
    unread.began(stuck)
    unread.began(slow)
    for second in range(1, 21):
        clock.now, slow.taken = second, second // 5
        unread.sweep()
    assert stuck.stalls == [10.0] and slow.stalls == [] and len(unread) == 1
    unread.ended(slow)
    assert len(unread) == 0


async def test_whoever_is_behind_is_swept_also_after_nobody_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue, "SWEEP_S", 0)
    clock, both = Clock(), budget()
    unread = Unread(10.0, clock)
    running = asyncio.create_task(unread.run())
    for client in (Client(both), Client(both)):
        await turns()
        unread.began(client)
        clock.now += 10.0
        await turns()
        assert client.stalls == [10.0] and len(unread) == 0
    running.cancel()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_the_oldest_incomplete_packet_is_dropped_if_it_is_old_enough() -> None:
    clock, all_ = Clock(), budget()
    packets = Packets(clock)
    clients = [Client(all_, f"user {number}") for number in range(3)]
    for number, client in enumerate(clients):
        clock.now = number
        assert packets.grow(client, 50) is None
    late = Client(all_, "late")
    clock.now = PATIENCE_S - 1
    assert packets.grow(late, 50) == Refusal(Kind.PACKETS, "broker", 120)
    clock.now = PATIENCE_S
    assert packets.grow(late, 50) is None
    assert [bool(client.dropped) for client in clients] == [True, False, False]


def test_only_a_client_of_the_same_user_is_dropped_for_its_quota() -> None:
    clock, all_ = Clock(), budget()
    packets = Packets(clock)
    other, one, two = Client(all_, "other"), Client(all_, "alice"), Client(all_, "alice")
    for client in (other, one, two):
        assert packets.grow(client, 45) is None
    clock.now = PATIENCE_S
    assert packets.grow(Client(all_, "alice"), 15) is None
    assert [bool(client.dropped) for client in (other, one, two)] == [False, True, False]


def test_a_paused_or_progressing_client_is_not_dropped_for_room() -> None:
    clock, all_ = Clock(), budget()
    packets = Packets(clock)
    waits, works = Client(all_, "a"), Client(all_, "a")
    waits.kept_waiting = True
    for client in (waits, works):
        assert packets.grow(client, 50) is None
    clock.now = PATIENCE_S
    packets.done(works)
    works.account.give(Kind.PACKETS, 1)
    assert packets.grow(works, 1) is None
    refusal = packets.grow(Client(all_, "a"), 5)
    assert refusal == Refusal(Kind.PACKETS, "user", 80) and not waits.dropped and not works.dropped


def test_a_client_over_its_own_share_goes_itself() -> None:
    clock, all_ = Clock(), budget()
    packets = Packets(clock)
    other, one = Client(all_, "a"), Client(all_, "a")
    assert packets.grow(other, 1) is None
    clock.now = PATIENCE_S
    assert packets.grow(one, 51) == Refusal(Kind.PACKETS, "client", 40) and not other.dropped
