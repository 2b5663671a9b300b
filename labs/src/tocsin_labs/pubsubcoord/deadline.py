"""Figure 8 and Table 1: one path that gets worse, and second ways for messages with a latency budget.

The links are real to TCP (``router``): what is lost is repeated by the brokers' kernels. Each condition has a pair of
edge brokers of its own (``overlay``), and all run at the same time. A link of a case is **A**, short and clean, or
**B**, long and lossy; L1 is the direct one, L2 and L3 those to and from the routing broker. A budget is a little above
what the best way of a case takes; without one, messages go over the routing broker alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from tocsin.errors import OperatorError
from tocsin_labs.pubsubcoord import places, router
from tocsin_labs.pubsubcoord.crowd import Heard, Job, Own, Topic
from tocsin_labs.pubsubcoord.overlay import Leg, Overlay, Paths, Sent, overlay
from tocsin_labs.pubsubcoord.plan import Plan
from tocsin_labs.pubsubcoord.wan import working
from tocsin_labs.stage import Stage

Kind = Literal["single", "two", "twin"]
SAID: Final[dict[Kind, str]] = {"single": "one path", "two": "two ways", "twin": "with a twin"}
WAYS: Final[dict[Kind, int]] = {"two": 2, "twin": 3}  # `deadline.ways_max`
CASES: Final = ("AAA", "AAB", "ABA", "ABB", "BAA", "BAB", "BBA", "BBB")  # Table 1: L1, L2, L3
MORE: Final = 4  # topics for each pair, for the bytes of a further one
ROOM: Final = 1.1  # times what delays alone take: the least budget


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """One publisher and one subscriber under one condition."""

    kind: Kind
    case: int  # of Table 1; 0: Figure 8a
    paths: Paths
    lasts_s: float
    rest: Sent  # on the pair's links in as long a time without messages
    sent: Sent  # with them
    own: Own
    late_p99_ms: float  # of the load, of all flows at the same time
    budget_s: float = 0.0  # 0: none
    message_bytes: float  # that a message brings to the pair's links, all of them together
    further_bytes: float  # the same for a message of a further such topic on the same links

    @property
    def floor_ms(self) -> float:
        """What delays alone take on the shortest way that may be used."""
        relayed = self.paths.up.delay_s + self.paths.down.delay_s
        return 1e3 * (relayed if self.kind == "single" else min(relayed, self.paths.direct.delay_s))

    @property
    def direct_bytes(self) -> float:
        """The part of ``message_bytes`` on the direct link."""
        return (self.sent.direct - self.rest.direct) / self.own.sent


def check() -> None:
    """``OperatorError`` where there can be no such network."""
    why = places.problem()
    if why:
        raise OperatorError(f"Figure 8 needs TUN devices in network namespaces: {why}", router.REMEDY)


def singles(plan: Plan) -> list[Paths]:
    """Figure 8a: both links of the routing broker alike."""
    found = []
    for loss in plan.deadline.losses:
        for delay_s in plan.deadline.delays_s:
            leg = Leg(delay_s, loss)
            found.append(Paths(leg, leg, leg))
    return found


def cases(plan: Plan) -> list[Paths]:
    """Table 1."""
    legs = {"A": Leg(*plan.deadline.near), "B": Leg(*plan.deadline.far)}
    return [Paths(*(legs[each] for each in case)) for case in CASES[: plan.deadline.cases]]


def budget_s(plan: Plan, paths: Paths) -> float:
    """The least budget of the plan that the best way of a case can keep."""
    best_s = min(paths.direct.delay_s, paths.up.delay_s + paths.down.delay_s)
    kept = [each for each in sorted(plan.deadline.budgets_s) if each >= ROOM * best_s]
    return kept[0] if kept else max(plan.deadline.budgets_s)


async def run(plan: Plan, stage: Stage, flows: list[Flow]) -> None:
    """Add each flow: Figure 8a, Table 1 with one path, and with second ways."""
    check()
    single, table = singles(plan), cases(plan)
    numbers = range(1, len(table) + 1)
    stage.tell("Figure 8: the network starts", 0.0)
    acts: list[tuple[Kind, Sequence[int], list[Paths], str]] = [
        ("single", [*([0] * len(single)), *numbers], [*single, *table], "Figure 8a and Table 1: one path"),
        ("twin", numbers, table, "Table 1: second ways, with a twin"),
    ]
    async with overlay(len(single) + len(table), plan.seed, WAYS["twin"]) as network:
        for done, (kind, which, paths, words) in enumerate(acts):
            if stage.is_cut:
                break
            stage.tell(words, done / 3)
            flows += await _measured(plan, network, kind, which, paths)
    if stage.is_cut:
        return
    stage.tell("Table 1: two ways", 2 / 3)
    async with overlay(len(table), plan.seed, WAYS["two"]) as network:
        flows += await _measured(plan, network, "two", numbers, table)


async def _measured(
    plan: Plan, network: Overlay, kind: Kind, which: Sequence[int], paths: list[Paths]
) -> list[Flow]:
    """All of them at the same time; then some more topics for each, for the bytes of one more."""
    await network.change(paths)
    budgets_s = [0.0 if kind == "single" else budget_s(plan, each) for each in paths]
    rest = await _over(network, plan.deadline.rest_s)
    heard, sent = await _loaded(plan, network, kind, budgets_s, 1)
    _, more = await _loaded(plan, network, kind, budgets_s, MORE)
    rate_s = 1 / plan.deadline.load.period_s
    flows = []
    for pair, (case, each) in enumerate(zip(which, paths, strict=False)):
        idle_s, one_s, more_s = (
            found[pair].bytes / seconds
            for found, seconds in (
                (rest, plan.deadline.rest_s),
                (sent, plan.deadline.lasts_s),
                (more, plan.deadline.more_s),
            )
        )
        flows.append(
            Flow(
                kind=kind, case=case, paths=each, lasts_s=plan.deadline.lasts_s,
                rest=rest[pair].times(plan.deadline.lasts_s / plan.deadline.rest_s), sent=sent[pair],
                own=heard.by_topic[_name(pair, kind, 0)], late_p99_ms=heard.late_ms.p99, budget_s=budgets_s[pair],
                message_bytes=(one_s - idle_s) / rate_s, further_bytes=(more_s - one_s) / rate_s / (MORE - 1),
            )
        )  # fmt: skip
    return flows


async def _loaded(
    plan: Plan, network: Overlay, kind: Kind, budgets_s: Sequence[float], count: int
) -> tuple[Heard, list[Sent]]:
    """So many topics for each pair; what was heard of them, and what was on the links."""
    times = plan.deadline
    lasts_s, known_s = (times.lasts_s, times.known_s) if count == 1 else (times.more_s, times.known_s / 2)
    topics = tuple(
        _topic(pair, kind, number, budget) for pair, budget in enumerate(budgets_s) for number in range(count)
    )
    job = Job(
        entrances=network.entrances, topics=topics, load=times.load, lag_s=0.0,
        spaces=network.lan_spaces, by_topic=True,
    )  # fmt: skip
    async with working(job) as running:
        if kind != "single":
            await asyncio.sleep(known_s)
        await running.begin()
        sent = await _over(network, lasts_s)
        return await running.end(), sent


def _name(pair: int, kind: Kind, number: int) -> str:
    return f"pair-{pair + 1}/{kind}-{number + 1}"


def _topic(pair: int, kind: Kind, number: int, budget: float) -> Topic:
    topic = Topic(_name(pair, kind, number), 2 * pair, 2 * pair + 1)
    if not budget:
        return topic
    words = f"{1e3 * budget:g}ms"
    return msgspec.structs.replace(
        topic, offer=(("offer.budget", words),), request=(("request.budget", words),)
    )


async def _over(network: Overlay, seconds: float) -> list[Sent]:
    """What was on the links in so many seconds."""
    before = await network.sent()
    await asyncio.sleep(seconds)
    return [now - then for now, then in zip(await network.sent(), before, strict=True)]
