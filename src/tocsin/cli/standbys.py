"""The output of ``tocsin explain standby``: which standby would take a broker's place, which one took it last, and
why."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from tocsin.cli.layout import lay_out, printable
from tocsin.config import Settings
from tocsin.coordinator.standbys import EXPLANATION, LAST, NEXT, Replacement, Shown
from tocsin.errors import OperatorError
from tocsin.ports import Table

NAMED_MAX: Final = 20  # brokers that a refusal names


class Row(msgspec.Struct, frozen=True):
    """One broker's row of the coordinators' table."""

    broker: str
    next: Replacement | None  # who would take its place
    last: Replacement | None  # the standby that took it last


async def look_up(table: Table) -> list[Row]:
    """All that is known, by broker."""
    found: dict[str, dict[str, Replacement]] = {}
    for prefix in (NEXT, LAST):
        for key in await table.keys(prefix):
            if (cell := await table.get(key)) is not None:
                found.setdefault(key.removeprefix(prefix), {})[prefix] = EXPLANATION.read(cell.value)
    return [Row(name, each.get(NEXT), each.get(LAST)) for name, each in sorted(found.items())]


def why_not(settings: Settings, broker: str | None, leads: bool) -> str:
    """Why nothing is known. ``OperatorError`` if there is no such broker, with those that there are."""
    known = sorted(each.id for each in settings.brokers)
    if broker is not None and broker not in known:
        more = f" … ({len(known)} in all)" if len(known) > NAMED_MAX else ""
        raise OperatorError(
            f"there is no broker {broker!r}", f"Name one of {', '.join(known[:NAMED_MAX])}{more}"
        )
    if not leads:
        return "no coordinator leads. Look at `tocsin coordinator status`."
    if broker is not None and any(each.id == broker and each.role == "standby" for each in settings.brokers):
        return f"{broker} is a standby: it takes the places of others, and nobody takes its own."
    if not any(each.role == "standby" for each in settings.brokers):
        return "the network has no standbys. Give a broker the role `standby`."
    return "no standby was asked yet: the leader does so a few seconds after brokers come."


# ── for programs ────────────────────────────────────────────────────────────────────────────────────────────


def as_json(row: Row, now_s: float) -> dict[str, Any]:
    """The same facts as the tables."""
    return {"broker": row.broker, "next": _object(row.next, now_s), "last": _object(row.last, now_s)}


def _object(explanation: Replacement | None, now_s: float) -> dict[str, Any] | None:
    if explanation is None:
        return None
    return {
        "cluster": explanation.cluster,
        "at_s": explanation.at_s,
        "age_s": round(max(now_s - explanation.at_s, 0.0), 3),
        "peers": explanation.peers,
        "chosen": _first(explanation),
        "candidates": [_candidate(each) for each in explanation.candidates],
    }


def _candidate(shown: Shown) -> dict[str, Any]:
    return {
        "name": shown.name,
        "same_cluster": shown.near,
        "answered": shown.answered,
        "score": shown.score,
        "terms": {name: {"value": value, "weight": weight} for name, (value, weight) in shown.terms.items()},
        "unanswered": shown.unanswered,
        "delay_ms": None if shown.delay_us is None else shown.delay_us / 1_000,
        "bandwidth_mbit": None if shown.kbit_s is None else shown.kbit_s / 1_000,
        "problems": shown.problems,
        "configuration": shown.configuration or None,
        "changed": {
            name: {"static": static, "value": value} for name, (static, value) in shown.changed.items()
        },
    }


def _first(explanation: Replacement) -> str | None:
    return explanation.candidates[0].name if explanation.candidates else None


# ── for people ──────────────────────────────────────────────────────────────────────────────────────────────


def show(out: Console, row: Row, now_s: float) -> None:
    for explanation, what in ((row.next, "would be replaced by"), (row.last, "was replaced by")):
        if explanation is not None:
            _show_one(out, explanation, what, now_s)


def _show_one(out: Console, explanation: Replacement, what: str, now_s: float) -> None:
    age = datetime.timedelta(seconds=int(max(now_s - explanation.at_s, 0)))
    chosen = _first(explanation)
    head = Text(f"{explanation.broker} {what} ", style="bold")
    out.print(head.append_text(printable(chosen or "nobody: no standby is free")).append(f" ({age} ago)"))
    if not explanation.candidates:
        return
    names = list(dict.fromkeys(name for each in explanation.candidates for name in each.terms))
    headings = ["standby", "score", "cluster", *names, "delay", "bandwidth"]
    rows = [
        [
            f"{'*' if each.name == chosen else ' '} {each.name}",
            "unknown" if each.score is None else f"{each.score:.3f}",
            "same" if each.near else "other",
            *(_term(each, name) for name in names),
            "unknown" if each.delay_us is None else f"{each.delay_us / 1_000:.1f} ms",
            "unknown" if each.kbit_s is None else f"{each.kbit_s / 1_000:,.1f} Mbit/s",
        ]
        for each in explanation.candidates
    ]
    table = lay_out(headings, rows, [False, True, False, *(True for _ in headings[3:])], out.width)
    if not out.is_terminal:
        table.box = None
    out.print(table)
    peers = ", ".join(explanation.peers) or "nobody"
    out.print(printable(f"delay and bandwidth: the mean of those to {peers}"))
    for line in _configurations(explanation.candidates):
        out.print(printable(line))
    for each in explanation.candidates:
        silent = () if each.answered else ("does not answer, and comes last",)
        unknown = tuple(f"{name} counts 0: {why}" for name, why in each.unanswered.items())
        for problem in (*silent, *unknown, *each.problems):
            out.print(Text("unknown: ", style="yellow").append_text(printable(f"{each.name}, {problem}")))
    out.print()


def _configurations(candidates: Iterable[Shown]) -> Iterator[str]:
    """Each configuration that standbys have, with what it changed of the score."""
    found: dict[str, list[str]] = {}
    for each in candidates:
        if each.configuration:
            changes = (
                f"{name} {value:g} (static: {static:g})" for name, (static, value) in each.changed.items()
            )
            words = f"configuration {each.configuration}: {', '.join(changes) or 'changes nothing'}"
            found.setdefault(words, []).append(each.name)
    for words, names in found.items():
        yield words if len(found) == 1 else f"{words}; of {', '.join(names)}"
    if len(found) > 1:
        yield "the standbys have different configurations: give all of them the same, or scores do not compare"


def _term(shown: Shown, name: str) -> str:
    if name not in shown.terms:
        return ""
    value, weight = shown.terms[name]
    return f"{value:.3f} × {weight:.2f}"
