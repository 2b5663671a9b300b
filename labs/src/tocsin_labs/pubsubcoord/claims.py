"""What the paper says of Figures 7 and 8 without numbers, held against what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin_labs.pubsubcoord.deadline import SAID, Flow, Kind
from tocsin_labs.pubsubcoord.hubs import Stand
from tocsin_labs.pubsubcoord.topics import Weighed, fitted
from tocsin_labs.pubsubcoord.virtual import Virtual
from tocsin_labs.statements import Claim

LINEAR: Final = 0.98  # R² from which on points count as on a line
FEW, ENOUGH = 5, 10  # routing brokers: the paper's are saturated, and are not
GOOD: Final = (
    4  # the first cases of Table 1; the paper counts the fifth too, which is the best single path itself
)
WORST: Final = (0.125, 0.01)  # the worst single path that the paper names


def of_topics(weighed: Sequence[Weighed]) -> list[Claim]:
    if sum(each.shape.is_plain for each in weighed) < 3:
        return []
    costs = fitted(weighed)
    fits = [costs.source_line.r2, costs.hub_line.r2, costs.target_line.r2]
    words = "processor use of edge brokers grows linearly with the topics"
    evidence = "R² {:.3f} (publishers' edge broker), {:.3f} (hub), {:.3f} (subscribers')".format(*fits)
    return [Claim("7d", words, min(costs.source_line.r2, costs.target_line.r2) >= LINEAR, evidence)]


def of_hubs(stands: Sequence[Stand], virtual: Sequence[Virtual]) -> list[Claim]:
    found = []
    if len(stands) > 1 and stands[0].capacity_s:
        one = stands[0].capacity_s / stands[0].hubs
        parts = [f"{each.hubs} hubs {each.capacity_s / one / each.hubs:.2f}" for each in stands[1:]]
        holds = all(each.capacity_s >= 0.85 * each.hubs * one for each in stands)
        evidence = f"of so many times one hub's: {', '.join(parts)}"
        found.append(Claim("7b", "the tier carries more with more routing brokers", holds, evidence))
    by_hubs = {each.size.hubs: each for each in virtual}
    if FEW in by_hubs:
        few = by_hubs[FEW]
        evidence = f"ours in virtual time: the busiest takes {100 * few.hub_share_most:.0f} % of a processor"
        words = f"{FEW} routing brokers are saturated by the paper's load"
        found.append(Claim("7b", words, few.is_saturated, evidence))
    if ENOUGH in by_hubs:
        enough = by_hubs[ENOUGH]
        evidence = (
            f"ours in virtual time: the busiest takes {100 * enough.hub_share_most:.0f} % of a processor"
        )
        found.append(Claim("7b", f"{ENOUGH} are not", not enough.is_saturated, evidence))
    return found


def of_deadlines(flows: Sequence[Flow]) -> list[Claim]:
    """Figure 8b, for each way of having second ways."""
    single = [each for each in flows if not each.case]
    worst = next((each for each in single if (each.paths.up.delay_s, each.paths.up.loss) == WORST), None)
    kinds: list[Kind] = [
        kind for kind in SAID if kind != "single" and any(each.kind == kind for each in flows)
    ]
    found = []
    for kind in kinds:
        means = {each.case: each.own.all_ms.mean for each in flows if each.kind == kind}
        least = min((each.own.all_ms.mean for each in single), default=None)
        if least is not None and len(means) >= GOOD:
            most = max(mean for case, mean in means.items() if case <= GOOD)
            evidence = f"at most {most:.1f} ms, for {least:.1f} ms of the best single path"
            words = f"cases 1 to {GOOD} (of 5) beat every single path ({SAID[kind]})"
            found.append(Claim("8b", words, most < least, evidence))
        if worst is not None and means:
            most = max(means.values())
            evidence = f"at most {most:.1f} ms, for {worst.own.all_ms.mean:.1f} ms"
            words = f"all cases beat a single path of 125 ms and 1 % ({SAID[kind]})"
            found.append(Claim("8b", words, most < worst.own.all_ms.mean, evidence))
    return found
