"""Paper and ours, side by side. Where the paper's text has no number, its column has what the plot scripts hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tocsin_labs.figures import Comparison, percentile
from tocsin_labs.pubsubcoord import paper
from tocsin_labs.pubsubcoord.failure import DOES, Failed
from tocsin_labs.pubsubcoord.joining import Joined
from tocsin_labs.pubsubcoord.locality import SAID, Kept, Point

TARGET_MS: Final = 6.0  # above the floor
P99_MS: Final = 125.0
LARGEST: Final = max(paper.MEANS_MS)
JOIN_P95_MS: Final = 50.0
JOIN_BYTES: Final = 1_000.0
GAP_TARGET_MS: Final = {"killed": 200.0, "frozen": 2_000.0, "drained": 200.0}


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
            rows.append(Comparison(name, "from the order until it carried nothing", "s", None, each.empty_s))
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
