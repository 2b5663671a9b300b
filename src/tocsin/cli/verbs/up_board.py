"""The display of ``tocsin up``: a live table on a terminal, one JSON line when everything is ready elsewhere."""

from __future__ import annotations

import contextlib
import sys
from types import TracebackType
from typing import Protocol

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tocsin.core.supervision.machine import SECOND_US, Health, Row
from tocsin.model.network import broker_address
from tocsin.runtime.network.directory import NetworkFile

STYLES: dict[Health, str] = {
    "waiting": "dim",
    "starting": "cyan",
    "ready": "green",
    "degraded": "yellow",
    "backing off": "red",
    "leaving": "dim",
    "reserve": "dim",
    "stopping": "dim",
    "stopped": "dim",
}
ADDRESS_FACTS = ("spark", "metrics", "http")  # of the pipeline's Spark and figures; of the feeder's endpoint
FOLDED = ("role", "")  # the columns that make room on a narrow terminal; others are there to be copied
FACTS_MAX = 3  # what fits beside the rest on a terminal of 120 columns
REFRESH_US = 900_000  # a little less than the second between two refreshes of ``tocsin up``


class Board(Protocol):
    """Somewhere to show a network."""

    def __enter__(self) -> Board: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> object: ...

    def show(self, rows: tuple[Row, ...], now_us: int) -> None:
        """The children as they are now."""
        ...

    def ready(self, rows: tuple[Row, ...], seconds: float) -> None:
        """Everything is ready for the first time, so many seconds after the start."""
        ...


class JsonBoard:
    """For programs: ``{"event": "ready", …}`` on standard output, once. Changes are in the log."""

    def __init__(self, network: NetworkFile, state: str) -> None:
        self._network = network
        self._state = state

    def __enter__(self) -> JsonBoard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, rows: tuple[Row, ...], now_us: int) -> None:
        pass

    def ready(self, rows: tuple[Row, ...], seconds: float) -> None:
        line = {
            "event": "ready",
            "network": self._network.network,
            "state": self._state,
            "seconds": round(seconds, 3),
            "nats": self._network.nats,
            "brokers": self._network.brokers,
            "feeder": self._network.feeder,
            "door": self._network.door,
            "pids": {row.name: row.pid for row in rows if row.pid is not None},
        }
        with contextlib.suppress(OSError):  # nobody reads: the network runs all the same
            sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
            sys.stdout.flush()


class LiveBoard:
    """For people: a table that is kept up to date, with the log above it."""

    def __init__(
        self, network: NetworkFile, state: str, console: Console | None = None, *, hint: str = ""
    ) -> None:
        self._network = network
        self._state = state
        self._hint = hint  # what the operator might want to know besides; empty if nothing
        self._ready_after_s: float | None = None
        self._shown: list[tuple[Health, str, int | None]] = []
        self._shown_us = 0
        # No thread of rich's: each change refreshes the table.
        self._live = Live(console=console or Console(), auto_refresh=False)

    def __enter__(self) -> LiveBoard:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._live.__exit__(kind, error, trace)

    def show(self, rows: tuple[Row, ...], now_us: int) -> None:
        news = [(row.health, row.problem, row.pid) for row in rows]
        if news == self._shown and now_us - self._shown_us < REFRESH_US:
            return  # only figures: they can wait for the next second
        self._shown, self._shown_us = news, now_us
        parts = Group(table(rows, self._network, now_us), Text(self._foot(), style="dim"))
        with contextlib.suppress(OSError):  # the terminal is gone: the network runs all the same
            self._live.update(parts, refresh=True)

    def ready(self, rows: tuple[Row, ...], seconds: float) -> None:
        self._ready_after_s = seconds
        self._shown = []  # the foot has news

    def _foot(self) -> str:
        if self._ready_after_s is None:
            return f"state and logs in {self._state}"
        first = next((url for each in self._network.brokers for url in each.urls()), "HOST:PORT")
        return (
            f"ready after {self._ready_after_s:.1f} s; state and logs in {self._state}\n"
            f"listen: tocsin sub --at {first} '#'      stop: Ctrl-C (twice: at once)"
            + (f"\n{self._hint}" if self._hint else "")
        )


def board(network: NetworkFile, state: str, *, hint: str = "") -> Board:
    """The board for where standard output leads."""
    return LiveBoard(network, state, hint=hint) if sys.stdout.isatty() else JsonBoard(network, state)


def table(rows: tuple[Row, ...], network: NetworkFile, now_us: int) -> Table:
    """One line a child."""
    described = {broker_address(broker.id): broker for broker in network.brokers}
    shown = Table(title=f"network {network.network}", title_justify="left", expand=False)
    for heading in ("process", "role", "address", "health", "pid", "up", "restarts", ""):
        shown.add_column(heading, overflow="fold", no_wrap=heading not in FOLDED)
    for row in rows:
        broker = described.get(row.name)
        role = f"{broker.role} of {broker.cluster}" if broker else str(row.facts.get("role", ""))
        address = "\n".join(broker.urls()) if broker else _other_address(row, network)
        shown.add_row(
            row.name,
            Text(role),
            Text(address),
            Text(row.health, style=STYLES[row.health]),
            "" if row.pid is None else str(row.pid),
            "" if row.pid is None else _duration((now_us - row.since_us) // SECOND_US),
            str(row.restarts) if row.restarts else "",
            Text(_note(row, now_us)),
        )
    return shown


def _other_address(row: Row, network: NetworkFile) -> str:
    """Embedded servers are the first rows, in the order of their addresses; others say where they are."""
    if row.name.startswith("coordinator-") and network.door is not None:
        return "\n".join(network.door.urls())
    told = [row.facts[name] for name in ADDRESS_FACTS if row.facts.get(name)]
    if told:
        return "\n".join(map(str, told))
    number = row.name.rpartition("-")[2]
    if row.stage != 0 or not number.isdigit() or not 0 < int(number) <= len(network.nats):
        return ""
    return network.nats[int(number) - 1].removeprefix("nats://")


def _note(row: Row, now_us: int) -> str:
    if row.health == "backing off":
        wait_s = max(0, row.retry_at_us - now_us) / SECOND_US
        return f"{row.problem}; again in {wait_s:.0f} s"
    if row.problem:
        return row.problem
    numbers = [(name, value) for name, value in row.facts.items() if isinstance(value, int | float)]
    return ", ".join(f"{value:,} {name}" for name, value in numbers[:FACTS_MAX])


def _duration(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
