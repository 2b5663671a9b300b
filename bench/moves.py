"""How often clients move when a standby takes their lost broker's place, and how soon they are served.

A network of two brokers in a cluster, one in another, and a standby. Clients with stored sessions are at the first
broker. It is frozen (SIGSTOP), or killed (SIGKILL) while nobody restarts it. Counted is how often each client comes to
another broker until nobody has moved for STILL_S, with ``recovery.standby_guests = "move"`` and ``"stay"``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import psutil
import uvloop

from bench.told import BACKUP, LOST, Network, network, until
from tocsin.client import AsyncClient
from tocsin.client.options import Connection

RESULTS: Final = Path(__file__).parent / "results"
SPARE: Final = "north-spare"
CLIENTS, QUICK_CLIENTS = 100, 20
STILL_S: Final = 15.0  # longer than the leader takes to send guests home
AFTER_S: Final = 60.0  # by which everybody is served elsewhere
SETTLE_S: Final = 3.0


class Case(msgspec.Struct, frozen=True):
    """One loss."""

    loss: str
    guests: str
    clients: int
    moves: int
    of_one: dict[int, int]  # moves → clients that moved so often
    served_ms: float  # median, until a client was served elsewhere
    at: dict[str, int]  # broker → clients that are there in the end


class Crowd:
    """Where clients are, and how often they have moved."""

    def __init__(self) -> None:
        self.began: float | None = None
        self.served: dict[str, float] = {}
        self.moves: Counter[str] = Counter()
        self.at: dict[str, str] = {}
        self.last = 0.0

    def told(self, name: str, connection: Connection) -> None:
        if not connection.up:
            return
        self.at[name] = connection.server
        if self.began is not None:
            self.last = time.monotonic()
            self.served.setdefault(name, self.last - self.began)
            self.moves[name] += 1


async def lose(loss: str, guests: str, count: int) -> Case:
    crowd = Crowd()
    setting = f"recovery.standby_guests={guests}"
    async with network("default", setting, standby=SPARE) as net, contextlib.AsyncExitStack() as stack:
        clients = [
            AsyncClient(
                net.url(LOST),
                client_id=f"c-{number}",
                session_expiry_s=600,
                on_connection=partial(crowd.told, f"c-{number}"),
            )
            for number in range(count)
        ]
        for client in clients:
            await stack.enter_async_context(client)
            await client.subscribe(f"a/{client.client_id}", qos=1)
        local = "{}:{}".format(*net.addresses[BACKUP])
        await until(lambda: all(each.others[:1] == (local,) and each.watched for each in clients))
        await asyncio.sleep(SETTLE_S)
        lost = psutil.Process(net.pids[f"broker/{LOST}"])
        supervisor = lost.parent()
        assert supervisor is not None, "tocsin up has started it"
        supervisor.send_signal(signal.SIGSTOP)  # it would start the broker again
        crowd.began = time.monotonic()
        lost.send_signal(signal.SIGKILL if loss == "killed" else signal.SIGSTOP)
        try:
            await until(
                lambda: (
                    (len(crowd.served) == count and time.monotonic() - crowd.last > STILL_S)
                    or time.monotonic() - (crowd.began or 0.0) > AFTER_S
                )
            )
        finally:
            supervisor.send_signal(signal.SIGCONT)
            if loss == "frozen":
                lost.send_signal(signal.SIGCONT)
        return _case(loss, guests, crowd, net, count)


def _case(loss: str, guests: str, crowd: Crowd, net: Network, count: int) -> Case:
    names = {"{}:{}".format(*address): name for name, address in net.addresses.items()}
    return Case(
        loss,
        guests,
        count,
        crowd.moves.total(),
        dict(sorted(Counter(crowd.moves.values()).items())),
        statistics.median(crowd.served.values()) * 1e3 if crowd.served else float("nan"),
        dict(Counter(names.get(server, server) for server in crowd.at.values())),
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.moves", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer clients")
    chosen = parser.parse_args(argv)
    cases = []
    for loss in ("killed", "frozen"):
        for guests in ("move", "stay"):
            case = uvloop.run(lose(loss, guests, QUICK_CLIENTS if chosen.quick else CLIENTS))
            cases.append(case)
            often = ", ".join(f"{clients} moved {often} times" for often, clients in case.of_one.items())
            where = ", ".join(f"{clients} at {broker}" for broker, clients in case.at.items())
            print(
                f"  {loss:6} {guests:4} {case.clients} clients: {case.moves} moves ({often}); served elsewhere after "
                f"{case.served_ms:,.0f} ms in the median; in the end {where}",
                flush=True,
            )
    RESULTS.mkdir(exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    report = {"machine": machine, "cases": msgspec.to_builtins(cases, str_keys=True)}
    (RESULTS / "moves.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
