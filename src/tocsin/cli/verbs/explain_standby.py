"""The output of ``tocsin explain standby``: which standby would take a broker's place, which one took it last, and
why; and which brokers are recruited as standbys, or cannot be."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec
from rich.console import Console
from rich.text import Text

from tocsin.cli.layout import lay_out, printable
from tocsin.config import Settings
from tocsin.coordinator.standbys import EXPLANATION, LAST, NEXT, Replacement, Shown
from tocsin.coordinator.status import Status
from tocsin.errors import OperatorError
from tocsin.ports import Table

NAMED_MAX: Final = 20  # brokers that a refusal names


class Recruiting(msgspec.Struct, frozen=True):
    """What the leader does with an edge broker that may have to stand by."""

    state: Literal["emptied", "stands by", "cannot be recruited"]
    why: str

    @property
    def words(self) -> str:
        text = {"emptied": "is recruited, and is being emptied", "stands by": "is recruited, and stands by"}
        return f"{text.get(self.state, self.state)}: {self.why}"


class Row(msgspec.Struct, frozen=True):
    """One broker's row of the coordinators' table."""

    broker: str
    next: Replacement | None  # who would take its place
    last: Replacement | None  # the standby that took it last
    recruiting: Recruiting | None = None  # None: its cluster needs no standby


async def look_up(table: Table, coordinators: Iterable[Status] = ()) -> list[Row]:
    """All that is known, by broker."""
    found: dict[str, dict[str, Replacement]] = {}
    for prefix in (NEXT, LAST):
        for key in await table.keys(prefix):
            if (cell := await table.get(key)) is not None:
                found.setdefault(key.removeprefix(prefix), {})[prefix] = EXPLANATION.read(cell.value)
    recruiting = _recruiting(coordinators)
    return [
        Row(name, found.get(name, {}).get(NEXT), found.get(name, {}).get(LAST), recruiting.get(name))
        for name in sorted({*found, *recruiting})
    ]


def _recruiting(coordinators: Iterable[Status]) -> dict[str, Recruiting]:
    """By broker, as the leader says it."""
    found: dict[str, Recruiting] = {}
    for leader in (each for each in coordinators if each.role == "leader"):
        for lack in leader.lacking:
            free = f"{lack.free} of {lack.wanted} standbys of {lack.cluster} are free"
            for broker, why in lack.obstacles.items():
                found[broker] = Recruiting("cannot be recruited", f"{why} ({free})")
        for each in leader.recruits:
            if each.stands_by:
                found[each.broker] = Recruiting("stands by", f"standbys of {each.cluster} are in use")
            else:
                left = f"{each.clients} clients have to leave it"
                place = f"; a standby has the place of {each.place}" if each.place else ""
                found[each.broker] = Recruiting("emptied", left + place)
    return found


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
    recruiting = None if row.recruiting is None else msgspec.structs.asdict(row.recruiting)
    return {
        "broker": row.broker,
        "next": _object(row.next, now_s),
        "last": _object(row.last, now_s),
        "recruiting": recruiting,
    }


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
    if row.recruiting is not None:
        out.print(printable(f"{row.broker} {row.recruiting.words}"))


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
