"""Paper and ours, side by side. Where the paper's text has no number, its column has what the plot scripts hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tocsin_labs.figures import Comparison, percentile
from tocsin_labs.pubsubcoord import deadline, paper
from tocsin_labs.pubsubcoord.costs import MICRO, Costs, Line
from tocsin_labs.pubsubcoord.deadline import CASES, Flow
from tocsin_labs.pubsubcoord.failure import DOES, Failed
from tocsin_labs.pubsubcoord.hubs import Stand
from tocsin_labs.pubsubcoord.joining import Joined
from tocsin_labs.pubsubcoord.locality import SAID, Kept, Point
from tocsin_labs.pubsubcoord.topics import Weighed, fitted
from tocsin_labs.pubsubcoord.virtual import Virtual

TARGET_MS: Final = 6.0  # above the floor
P99_MS: Final = 125.0
LARGEST: Final = max(paper.MEANS_MS)
JOIN_P95_MS: Final = 50.0
JOIN_BYTES: Final = 1_000.0
TEN: Final = 10
LINE_POINTS: Final = 3  # at least, for a line to say something
EASY_TOPICS: Final = 100  # up to which the mean has a target
UNEVEN: Final = 1.15
SHORT: Final = 1 / 0.85  # of what so many hubs carry against so many times one hub's
HELPED_S: Final = 30.0
CASE_MS: Final = (36, 36, 36, 36, 68, 268, 266, 262)  # the targets of Table 1 with second ways
USUAL: Final = 5  # the case in which the usual way keeps the budget, so that there are no copies
COPIES: Final = 2.05  # times the bytes of one path
GAP_TARGET_MS: Final = {"killed": 200.0, "frozen": 2_000.0}


def locality_rows(points: Sequence[Point], kept: Iterable[Kept]) -> list[Comparison]:
    rows = []
    for each in points:
        name = f"Figure 6, {SAID[each.system]}{each.topics} topics, locality {each.locality:g}"
        ours, heard = each.system == "tocsin", each.heard
        theirs = paper.MEANS_MS.get(each.topics, {}).get(each.locality) if ours else None
        target = each.floor_ms + TARGET_MS if ours and theirs is not None else None
        rows += [
            Comparison(name, f"mean; floor {each.floor_ms:g}", "ms", theirs, heard.all_ms.mean, target),
            Comparison(
                name, "99th percentile", "ms", None, heard.all_ms.p99, P99_MS if target is not None else None
            ),
        ]
        largest = ours and each.topics == LARGEST
        share = paper.EDGE_SHARES.get(each.locality) if largest else None
        memory = paper.EDGE_MB.get(each.locality) if largest else None
        rows += [
            Comparison(name, "an edge broker, of one processor", "%", _percent(share), 100 * each.edges.share),
            Comparison(name, "a hub, of one processor", "%", None, 100 * each.hubs.share),
            Comparison(name, "an edge broker, memory", "MB", memory, each.edges.mb),
            Comparison(name, "lost, doubled or out of order", "messages", None, _wrong(each.heard)),
            Comparison(name, "the load itself was late, 99th percentile", "ms", None, heard.late_ms.p99),
        ]  # fmt: skip
    for found in kept:
        name = f"Figure 6, {found.topics} topics, all local ({found.messages_s:.0f} messages/s)"
        more = max(0.0, found.local_bytes_s - found.rest_bytes_s)
        rows += [
            Comparison(name, "links of LANs at rest", "bytes/s", None, found.rest_bytes_s),
            Comparison(name, "links of LANs under the load", "bytes/s", None, found.local_bytes_s),
            Comparison(name, "for a local message", "bytes", 0.0, more / found.messages_s),
        ]
    return rows


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _wrong(heard: object) -> int:
    return sum(getattr(heard, name) for name in ("lost", "doubled", "disordered"))


def failure_rows(found: Iterable[Failed]) -> list[Comparison]:
    rows = []
    for each in found:
        name, heard = f"Failure, {DOES[each.way]}", each.heard
        silences = sorted(each.heard.silences_s)
        target = GAP_TARGET_MS.get(each.way)
        rows += [
            Comparison(name, "longest silence of a topic", "ms", None, 1e3 * silences[-1], target),
            Comparison(name, "topics interrupted", "%", None, 100 * len(each.interrupted) / len(silences)),
            Comparison(name, "topics that the hub carried", "%", None, 100 * each.part),
        ]
        if each.interrupted:
            median = 1e3 * percentile(sorted(each.interrupted), 50)
            rows.append(Comparison(name, "silence of an interrupted topic, median", "ms", None, median))
        if each.empty_s is not None:
            until = "every slot had moved" if each.way == "moved" else "it carried nothing"
            rows.append(Comparison(name, f"from the order until {until}", "s", None, each.empty_s))
        lost = f"lost, of {heard.sent:,}"
        if each.way == "killed":
            lost += f"; on the hub's ways at a time {each.flight:,}"
        rows += [
            Comparison(name, lost, "messages", None, heard.lost),
            Comparison(name, "doubled", "messages", None, heard.doubled),
            Comparison(name, "out of order", "messages", None, heard.disordered),
            Comparison(name, "from publisher to subscriber, 99th percentile", "ms", None, heard.all_ms.p99),
        ]
    return rows


def joining_rows(found: Iterable[Joined]) -> list[Comparison]:
    """The paper's figure is the time in which its server answered a request: a part of what is asked here."""
    rows = []
    for each in found:
        told = each.told
        name = f"Figure 7c, {told.joins:,} joins"
        theirs = paper.JOINS_MS.get(told.joins)
        rows += [
            Comparison(name, "in force, median", "ms", theirs, told.force_ms.p50, theirs),
            Comparison(name, "in force, 95th percentile", "ms", None, told.force_ms.p95, JOIN_P95_MS),
            Comparison(name, "never in force", "joins", None, told.missing),
            Comparison(name, "log, for each", "bytes", None, each.bytes_each, JOIN_BYTES),
            Comparison(name, "entries of the log", "entries", None, each.log_entries),
            Comparison(
                name, "the leader, processor time for each", "µs", None, 1e6 * each.leader_s / told.joins
            ),
        ]
    return rows


def topics_rows(weighed: Sequence[Weighed], virtual: Iterable[Virtual]) -> list[Comparison]:
    """The paper's figures have no numbers."""
    rows = []
    for each in weighed:
        name, heard = f"Figure 7a, {each.shape.words}", each.heard
        easy = each.shape.is_plain and each.shape.topics <= EASY_TOPICS
        target = each.floor_ms + TARGET_MS if easy else None
        rows += [
            Comparison(name, f"mean; floor {each.floor_ms:g}", "ms", None, heard.all_ms.mean, target),
            Comparison(name, "99th percentile", "ms", None, heard.all_ms.p99),
            Comparison(name, "longest", "ms", None, heard.all_ms.longest),
            Comparison(name, "publishers' edge broker, of one processor", "%", None, 100 * each.source.share),
            Comparison(name, "hub, of one processor", "%", None, 100 * each.hub.share),
            Comparison(name, "subscribers' edge broker, of one processor", "%", None, 100 * each.target.share),
            Comparison(name, "lost, doubled or out of order", "messages", None, _wrong(heard)),
            Comparison(name, "the load itself was late, 99th percentile", "ms", None, heard.late_ms.p99),
        ]  # fmt: skip
    if weighed:
        rows += _cost_rows(fitted(weighed), sum(each.shape.is_plain for each in weighed) >= LINE_POINTS)
    for found in virtual:
        count = found.size.topics * found.size.networks // found.size.targets
        rows += _virtual_rows(f"Figure 7a, virtual, {count} topics a network", found)
    return rows


def _cost_rows(costs: Costs, has_line: bool) -> list[Comparison]:
    name, rows = "Figure 7d, a message", []
    kinds: tuple[tuple[str, float, Line], ...] = (
        ("publisher's edge broker", costs.source_s, costs.source_line),
        ("hub", costs.hub_s, costs.hub_line),
        ("subscriber's edge broker", costs.target_s, costs.target_line),
    )
    for who, each_s, line in kinds:
        rows.append(
            Comparison(name, f"{who}, processor, under the heaviest load", "µs", None, MICRO * each_s)
        )
        if has_line:
            rows += [
                Comparison(name, f"{who}, slope of the line", "µs", None, MICRO * line.slope),
                Comparison(name, f"{who}, off the line: 1 − R²", "parts", None, 1 - line.r2, 0.02),
            ]
    return [
        *rows,
        Comparison(name, "hub, for each further broker that it goes to", "µs", None, MICRO * costs.out_s),
        Comparison(name, "edge broker, for each further subscriber", "µs", None, MICRO * costs.reader_s),
        Comparison(name, "a processor forwards, one to one", "messages/s", None, 1 / costs.hub_s),
        Comparison(
            name, "a processor sends out, one to ten", "messages/s", None, TEN / costs.hub_work_s(TEN)
        ),
    ]


def _virtual_rows(name: str, found: Virtual) -> list[Comparison]:
    name = f"{name} ({found.in_s:,.0f} messages/s in, {found.out_s:,.0f} out)"
    rows = [
        Comparison(name, f"mean; floor {found.floor_ms:g}", "ms", None, found.all_ms.mean),
        Comparison(name, "longest", "ms", None, found.all_ms.longest),
        Comparison(name, "publishers' edge brokers, of one processor", "%", None, 100 * found.source_share),
        Comparison(name, "subscribers' edge brokers, of one processor", "%", None, 100 * found.target_share),
        Comparison(name, "hubs, of one processor", "%", None, 100 * found.hub_share),
        Comparison(name, "busiest hub, of one processor", "%", None, 100 * found.hub_share_most, 100.0),
        Comparison(name, "busiest hub, against the mean", "times", None, found.uneven, UNEVEN),
    ]  # fmt: skip
    return rows


def hubs_rows(stands: Sequence[Stand], virtual: Iterable[Virtual]) -> list[Comparison]:
    rows = []
    for each in stands:
        name = f"Figure 7b, {each.hubs} hub{'s' * (each.hubs > 1)} of {100 * each.share:g} % of a processor"
        one = stands[0].capacity_s / stands[0].hubs
        rows.append(Comparison(name, "followed, highest", "messages/s", None, each.capacity_s))
        if each is not stands[0]:
            short = each.hubs * one / each.capacity_s if each.capacity_s else None
            rows += [
                Comparison(name, f"{each.hubs} × one hub's, over that", "times", None, short, SHORT),
                Comparison(name, "topics of the hub with most, against the mean", "times", None, each.uneven, UNEVEN),
            ]  # fmt: skip
        rows.append(Comparison(name, "99th percentile at rest", "ms", None, each.rest_p99_ms))
        if each.added is not None:
            rows += [
                Comparison(name, "added under too much load: it runs after", "s", None, each.added.started_s),
                Comparison(name, "and has helped after", "s", None, each.added.helped_s, HELPED_S),
                Comparison(
                    name, "meanwhile lost or doubled", "messages", None, each.added.lost + each.added.doubled
                ),
                Comparison(name, "meanwhile out of order", "messages", None, each.added.disordered),
            ]
        late = max((step.late_p99_ms for step in each.steps if step.follows), default=None)
        rows.append(Comparison(name, "the load itself was late, 99th percentile, at most", "ms", None, late))
    for found in virtual:
        rows += _virtual_rows(f"Figure 7b, virtual, {found.size.hubs} hubs", found)
    return rows


def deadline_rows(flows: Sequence[Flow]) -> list[Comparison]:
    """Figure 8 has no numbers in the text; what it says of them is in the claims."""
    rows = []
    alone = {each.case: each for each in flows if each.kind == "single" and each.case}
    marked = {each.kind: each for each in flows if each.case == USUAL}
    for each in flows:
        spread = each.own.all_ms
        if each.case:
            name = f"Table 1, case {each.case} ({CASES[each.case - 1]}), {deadline.SAID[each.kind]}"
        else:
            name = f"Figure 8a, {each.paths.up.words}"
        target = CASE_MS[each.case - 1] if each.kind != "single" else None
        rows += [
            Comparison(name, f"mean; floor {each.floor_ms:g}", "ms", None, spread.mean, target),
            Comparison(name, "99th percentile", "ms", None, spread.p99),
            Comparison(name, "longest", "ms", None, spread.longest),
            Comparison(name, f"lost, of {each.own.sent:,}", "messages", None, each.own.lost),
            Comparison(name, "on the links, for a message", "bytes", None, each.message_bytes),
            Comparison(name, "for a message of a further topic", "bytes", None, each.further_bytes),
        ]
        if each.kind != "single" and each.case in alone:
            times = each.message_bytes / alone[each.case].message_bytes
            further = each.further_bytes / alone[each.case].further_bytes
            rows += [
                Comparison(name, "bytes against one path", "times", None, times, COPIES),
                Comparison(name, "the same, of a further topic", "times", None, further, COPIES),
            ]
        plain = marked.get(each.kind) if each.kind != "single" else None
        if plain is not None and each.case != USUAL:
            times = each.further_bytes / plain.further_bytes
            words = "of a further topic, against one with a budget and no copies"
            rows.append(Comparison(name, words, "times", None, times, COPIES))
    return rows
