"""A scene at one moment, and its drawing: brokers, subscribers, notifications, recoveries.

``look`` reads a scene; everything else is a function of what it saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tocsin_demo.scene import Account, Course, Scene

BAR_MIN, BAR_MAX = 16, 48  # characters that stand for all subscribers
BESIDE_BAR: Final = 66  # what the other columns need
COUNTS: Final = 16
RECOVERIES: Final = 108  # columns that the table of recoveries needs; where there are fewer, sentences
BESIDE_HISTORY: Final = 34
SPARKS: Final = " ▁▂▃▄▅▆▇█"
HISTORY_S: Final = 60  # of notifications that are drawn
NOT_YET: Final = "…"


class BrokerLook(msgspec.Struct, frozen=True):
    """One broker."""

    name: str
    cluster: str
    homes: int  # subscribers that are at home here
    health: str  # as its supervisor reports it
    down: bool  # it is kept down …
    frozen: bool  # … or stopped where it is
    lost: bool  # it counts as lost
    at_home: int  # connected here, and at home here
    guests: int  # connected here, and at home elsewhere
    stands_in_for: tuple[str, ...] = ()

    def state(self) -> Text:
        if self.down:
            return Text("lost" if self.lost else "frozen" if self.frozen else "killed", style="bold red")
        if self.stands_in_for:
            return Text(f"stands in for {', '.join(self.stands_in_for)}", style="bold cyan")
        if self.health in ("ready", "degraded"):
            return Text("serves", style="green")
        return Text(
            "comes back" if self.health in ("starting", "backing off") else self.health, style="yellow"
        )


class Look(msgspec.Struct, frozen=True):
    """A scene at one moment."""

    at_s: float  # since the play began
    seconds: float  # that it takes
    brokers: tuple[BrokerLook, ...]
    subscribers: int
    away: int  # subscribers that are connected to nobody
    received: int
    rate: float  # notifications a second
    history: tuple[int, ...]  # notifications of each of the last seconds
    published: int  # emergencies
    latest: str  # the last of them
    channel: dict[str, Any]  # how it is; empty if nobody has asked yet
    courses: tuple[Course, ...]


def look(scene: Scene, now_s: float, seconds: float, channel: dict[str, Any]) -> Look:
    """The current view."""
    begun_s = scene.begun_s or now_s
    courses = tuple(map(scene.course, scene.failures))
    presence, rows, down = scene.ledger.presence(), scene.brokers, scene.down
    lost: dict[str, bool] = {}  # by the newest failure of each
    frozen = {broker: each.failure.frozen for each in courses for broker in each.failure.brokers}
    for each in courses:
        lost.update({broker: at_s is not None for broker, at_s in each.lost_s.items()})
    told = scene.publisher.told
    return Look(
        at_s=now_s - begun_s,
        seconds=seconds,
        brokers=tuple(
            BrokerLook(
                name=home.broker,
                cluster=home.cluster,
                homes=home.subscribers,
                health=rows[home.broker].health,
                down=home.broker in down,
                frozen=frozen.get(home.broker, False),
                lost=lost.get(home.broker, False),
                at_home=presence[home.broker].at_home,
                guests=presence[home.broker].guests,
                stands_in_for=_stands_in_for(home.broker, courses, down),
            )
            for home in scene.script.homes
        ),
        subscribers=scene.script.subscribers,
        away=scene.ledger.away,
        received=scene.ledger.received,
        rate=scene.ledger.rate(now_s),
        history=tuple(scene.ledger.per_second(max(begun_s, now_s - HISTORY_S), now_s)),
        published=scene.happened,
        latest=told[-1][2].id if scene.happened else "",
        channel=channel,
        courses=courses,
    )


def _stands_in_for(broker: str, courses: Sequence[Course], down: Sequence[str]) -> tuple[str, ...]:
    newest: dict[str, str | None] = {}
    for course in courses:
        newest.update(course.stands_in)
    return tuple(gone for gone, by in newest.items() if by == broker and gone in down)


# ── drawn ───────────────────────────────────────────────────────────────────────────────────────────────────


def draw(seen: Look, words: str, width: int) -> RenderableType:
    """All of it, for a terminal that wide; ``words`` say what is going on."""
    parts: list[RenderableType] = [
        _headline(seen, words),
        Padding(brokers_table(seen, min(BAR_MAX, max(BAR_MIN, width - BESIDE_BAR))), (1, 0, 0, 2)),
        Padding(_figures(seen, max(0, width - BESIDE_HISTORY)), (1, 0, 0, 2)),
    ]
    if seen.courses and width >= RECOVERIES:
        parts.append(Padding(recoveries_table(seen.courses), (1, 0, 0, 2)))
    elif seen.courses:
        parts += [Text(), *(Padding(recovery_words(each), (0, 0, 0, 2)) for each in seen.courses)]
    return Group(*parts)


def _headline(seen: Look, words: str) -> Text:
    line = Text.assemble(("Emergencies near me", "bold"), "  ", (clock(seen.at_s), "bold"))
    if seen.at_s <= seen.seconds:
        line.append(f" of {clock(seen.seconds)}", style="dim")
    line.append(f"   {words}", style="cyan")
    return line


def brokers_table(seen: Look, bar: int) -> Table:
    """One line a broker; a bar of so many characters stands for all subscribers."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("broker", "home of", "connected", "", "state"):
        table.add_column(heading, justify="right" if heading == "home of" else "left", no_wrap=True)
    table.columns[2].width = bar
    table.columns[3].min_width = COUNTS  # so that nothing jumps when guests come

    def part(count: int) -> int:
        return max(1, round(bar * count / seen.subscribers)) if count else 0

    for number, each in enumerate(seen.brokers):
        if number and seen.brokers[number - 1].cluster != each.cluster:
            table.add_row()
        own, others = part(each.at_home), part(each.guests)
        drawn = Text.assemble(("█" * own, "green"), ("█" * others, "yellow"))
        drawn.append("·" * max(0, part(each.homes) - own - others), style="dim")
        counts = Text(str(each.at_home))
        if each.guests:
            counts.append(f" + {each.guests} guests", style="yellow")
        table.add_row(each.name, str(each.homes), drawn, counts, each.state())
    table.add_row()
    away = Text(str(seen.away), style="bold red") if seen.away else Text("0", style="dim")
    table.add_row(Text("nobody", style="dim"), "", Text("█" * part(seen.away), style="red"), away)
    return table


def _figures(seen: Look, width: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    spark = Text(sparkline(seen.history[-width:] if width else ()), style="green")
    table.add_row(
        Text("notifications", style="dim"), Text.assemble(f"{seen.received:,}  {seen.rate:.0f}/s  ", spark)
    )
    latest = f", the last {seen.latest}" if seen.latest else ""
    table.add_row(Text("emergencies", style="dim"), f"{seen.published}{latest}")
    if seen.channel:
        each = seen.channel
        skipped = f", {each['overruns']} skipped" if each["overruns"] else ""
        table.add_row(
            Text("channel", style="dim"),
            f"{each['executions']} executions for {each['subscriptions']} subscriptions, "
            f"the last in {each['last_ms'] / 1e3:.1f} s{skipped}",
        )
    return table


def sparkline(counts: Sequence[int]) -> str:
    """A character for each count, as high as it is beside the highest."""
    most = max(counts, default=0) or 1
    return "".join(SPARKS[-(-count * (len(SPARKS) - 1) // most)] for count in counts)


def recoveries_table(courses: Sequence[Course]) -> Table:
    """One line for each failure: its subscribers, and how long everything took from the kill on."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    headings = (
        "failed",
        "subscribers there",
        "served again",
        "the last after",
        "declared lost",
        "stands in",
        "after",
    )
    for heading in headings:
        left = heading in ("failed", "stands in")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for each in courses:
        everybody = each.back == len(each.passages)
        table.add_row(
            Text(" ".join(each.failure.brokers) + (" (frozen)" if each.failure.frozen else ""), style="bold"),
            str(len(each.passages)),
            Text(str(each.back), style="green" if everybody else "bold red"),
            _seconds(each.back_after_s),
            _seconds(each.lost_after_s),
            " ".join(by or NOT_YET for by in each.stands_in.values()),
            _seconds(each.taken_after_s),
        )
    return table


def account_table(found: Account, courses: Sequence[Course]) -> Table:
    """The end: what became of everything that the backend committed."""
    table = Table(show_header=False, title="The account", title_justify="left", title_style="bold")
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_row(
        "delivered",
        f"{found.delivered:,} of {found.committed:,} notifications committed for {found.subscribers} subscribers, "
        f"{found.critical:,} of them critical",
    )
    table.add_row("lost", _count(found.lost))
    dropped = f" ({found.repeats:,} came to a client again, and not to its program)" if found.repeats else ""
    table.add_row("duplicates", Text.assemble(_count(found.duplicates), dropped))
    table.add_row("out of order", _count(found.out_of_order))
    if found.strange:
        table.add_row("never committed", _count(found.strange))
    for each in courses:
        killed, _, rest = recovery_words(each).partition(": ")
        table.add_row(killed, rest)
    for words in found.examples:
        table.add_row("", Text(words, style="red"))
    return table


def recovery_words(course: Course) -> str:
    """How a recovery went, as far as it is known, in a sentence."""
    people = f"{len(course.passages)} subscribers"
    if course.back < len(course.passages):
        people += f", {course.back} served again"
    elif course.back_after_s is not None:
        people += f", all served again after {course.back_after_s:.2f} s"
    decided = [
        f"{what} after {after_s:.2f} s"
        for what, after_s in (("declared lost", course.lost_after_s), ("stood in for", course.taken_after_s))
        if after_s is not None
    ]
    rest = ", ".join(decided) or "not declared lost"
    how = "frozen" if course.failure.frozen else "killed"
    return f"{' and '.join(course.failure.brokers)} {how}: {people}; {rest}"


def plain(seen: Look) -> str:
    """A line that says how it is, for where there is no terminal."""
    brokers = ", ".join(
        f"{each.name} {each.state().plain} {each.at_home}" + (f"+{each.guests}" if each.guests else "")
        for each in seen.brokers
    )
    away = f", {seen.away} connected to nobody" if seen.away else ""
    return (
        f"{brokers}{away}; {seen.received:,} notifications, {seen.rate:.0f}/s; {seen.published} emergencies"
    )


def _count(number: int) -> Text:
    return Text(f"{number:,}", style="bold red" if number else "bold green")


def _seconds(value: float | None) -> str:
    return NOT_YET if value is None else f"{value:.2f} s"


def clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes}:{rest:02}"
