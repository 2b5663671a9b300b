"""The cost of copies at backups: bytes on the bus and processor time for a change, for a moved position, for a
resync.

The machines and the codec of production in one process, without a bus: a primary that reads its state from tables, and
two backups. Time is the thread's own, of the primary (both its updates) and of one backup. Beside it stands what it
would cost to send everything at each change, as the paper's ``l_sync(i, Γ_i)`` reads.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tocsin.core.machine import Effect, Event, Received, Send, Started, TimerFired
from tocsin.core.replication.backup import Backup
from tocsin.core.replication.primary import Primary, PrimaryTimer
from tocsin.core.replication.signals import Altered, BackupsSet, Policy
from tocsin.wire.internal.replication import (
    Head,
    Option,
    Positions,
    Replication,
    decode_replication,
    encode_replication,
)

RESULTS: Final = Path(__file__).parent / "results"
SUBSCRIPTIONS: Final = 2  # of each client
SESSION: Final = "0123456789abcdef"


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    clients: int
    changes: int
    rounds: int


FULL: Final = Plan(20_000, 5_000, 5)
QUICK: Final = Plan(2_000, 500, 3)


class State:
    """Γ in tables."""

    def __init__(self, clients: int) -> None:
        names = [f"device-{number:06}" for number in range(clients)]
        self.heads = {name: Head(True, expiry_s=3_600, session=SESSION, owner="city") for name in names}
        self.options = {
            name: {f"city/district-{index}/{name}/alarm": Option(qos=1) for index in range(SUBSCRIPTIONS)}
            for name in names
        }
        self.at = dict.fromkeys(names, Positions(1_000_000))

    def clients(self) -> Iterable[str]:
        return self.heads

    def head(self, client: str) -> Head | None:
        return self.heads.get(client)

    def names(self, client: str) -> Iterable[str]:
        return self.options[client]

    def option(self, client: str, name: str) -> Option | None:
        return self.options[client].get(name)

    def positions(self, client: str) -> Positions | None:
        return self.at.get(client)

    def volume(self, client: str) -> int:
        return 0

    def void(self, client: str) -> str:
        return ""

    def voided(self) -> Iterable[str]:
        return ()


class Network:
    """A primary and two backups, in which every message arrives at once."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.primary = Primary("p", state, Policy())
        self.backups = {name: Backup(name) for name in ("local", "remote")}
        self.bytes = 0
        self.primary_s = 0.0
        self.backup_s = 0.0  # of both
        self.post(Started(incarnation=1))

    def post(self, event: Event) -> None:
        self._carry_out(self._primary(event))

    def flush(self) -> None:
        self.post(TimerFired(name=PrimaryTimer.FLUSH))

    def _primary(self, event: Event) -> list[tuple[str, bytes]]:
        began = time.thread_time()
        sent = _encoded(self.primary.handle(event, 0))
        self.primary_s += time.thread_time() - began
        return sent

    def _carry_out(self, sent: list[tuple[str, bytes]]) -> None:
        while sent:
            to, data = sent.pop(0)
            self.bytes += len(data)
            began = time.thread_time()
            message = decode_replication(data).message
            answers = _encoded(self.backups[to].handle(Received(sender="broker/p", message=message), 0))
            self.backup_s += time.thread_time() - began
            for _, answer in answers:
                self.bytes += len(answer)
                sent += self._primary(Received(sender=f"broker/{to}", message=_message(answer)))

    def spent(self) -> tuple[int, float, float]:
        """Bytes and seconds, of the primary and of one backup, since this was asked last."""
        found = (self.bytes, self.primary_s, self.backup_s / len(self.backups))
        self.bytes, self.primary_s, self.backup_s = 0, 0.0, 0.0
        return found


def _encoded(effects: list[Effect]) -> list[tuple[str, bytes]]:
    return [
        (each.to.removeprefix("broker/"), encode_replication("broker/p", each.cause, each.message))
        for each in effects
        if isinstance(each, Send)
    ]


def _message(data: bytes) -> Replication:
    return decode_replication(data).message


def measure(plan: Plan) -> dict[str, dict[str, float]]:
    """One round: figures for each change, or for each thousand clients."""
    network = Network(State(plan.clients))
    clients = list(network.state.heads)
    network.post(BackupsSet(local="local", remote="remote"))
    network.flush()
    resync = _figures(network.spent(), plan.clients / 1_000)
    assert all(len(each.copies["p"].clients) == plan.clients for each in network.backups.values())
    found = {"resync of 1 000 clients": resync}
    for together in (1, 50):
        for number in range(plan.changes):
            client, name = clients[number % len(clients)], f"new/{together}/{number}"
            network.state.options[client][name] = Option(qos=1)
            network.post(Altered(client=client, names=(name,)))
            if number % together == together - 1:
                network.flush()
        found[f"a subscription, {together} at a time"] = _figures(network.spent(), plan.changes)
    for client in clients:
        network.state.at[client] = Positions(1_000_001)
    while network.primary._scan.under_way or network.primary.statistics()["positions_out_of_sync"] == 0:
        network.post(TimerFired(name=PrimaryTimer.SCAN))
    network.flush()
    found["positions of 1 000 clients"] = _figures(network.spent(), plan.clients / 1_000)
    return found


def _figures(spent: tuple[int, float, float], divisor: float) -> dict[str, float]:
    sent, primary_s, backup_s = spent
    return {
        "bytes": sent / divisor,
        "primary_us": primary_s / divisor * 1e6,
        "backup_us": backup_s / divisor * 1e6,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replication", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer clients and rounds, in a few seconds")
    plan = QUICK if parser.parse_args(argv).quick else FULL
    rounds = [measure(plan) for _ in range(plan.rounds)]
    figures = {
        name: {
            key: round(statistics.median(each[name][key] for each in rounds), 1) for key in rounds[0][name]
        }
        for name in rounds[0]
    }
    print(f"{'':<28} {'bytes, to both':>15} {'primary':>12} {'a backup':>12}   median of {plan.rounds}")
    for name, each in figures.items():
        print(
            f"{name:<28} {each['bytes']:>15,.0f} {each['primary_us']:>9,.1f} µs {each['backup_us']:>9,.1f} µs"
        )
    resync, change = figures["resync of 1 000 clients"], figures["a subscription, 1 at a time"]
    whole = resync["bytes"] * plan.clients / 1_000
    print(
        f"sending everything at each change, {plan.clients:,} clients: {whole / change['bytes']:,.0f} × the bytes"
    )
    report = {"python": platform.python_version(), "plan": msgspec.to_builtins(plan), "figures": figures}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "replication.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
