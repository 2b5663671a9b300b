"""Figure 8 and Table 1: one path that gets worse, and second ways for messages with a latency budget.

The links are real to TCP (``router``): what is lost is repeated by the brokers' kernels. Each condition has a pair of
edge brokers of its own (``overlay``), and all run at the same time. A link of a case is **A**, short and clean, or
**B**, long and lossy; L1 is the direct one, L2 and L3 those to and from the routing broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from tocsin.errors import OperatorError
from tocsin_labs.pubsubcoord import places, router
from tocsin_labs.pubsubcoord.crowd import Heard, Job, Own
from tocsin_labs.pubsubcoord.overlay import Leg, Overlay, Paths, Sent, overlay, topic_of
from tocsin_labs.pubsubcoord.plan import Plan
from tocsin_labs.pubsubcoord.wan import working
from tocsin_labs.stage import Stage

Kind = Literal["single", "ways"]
SAID: Final[dict[Kind, str]] = {"single": "one path", "ways": "second ways"}
CASES: Final = ("AAA", "AAB", "ABA", "ABB", "BAA", "BAB", "BBA", "BBB")  # Table 1: L1, L2, L3
REST_S: Final = 5.0


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

    @property
    def floor_ms(self) -> float:
        """What delays alone take on the shortest way that may be used."""
        relayed = self.paths.up.delay_s + self.paths.down.delay_s
        return 1e3 * (relayed if self.kind == "single" else min(relayed, self.paths.direct.delay_s))

    @property
    def message_bytes(self) -> float:
        """That a message brought to the pair's links, all of them together."""
        return (self.sent.bytes - self.rest.bytes) / self.own.sent

    @property
    def direct_bytes(self) -> float:
        """The part of these on the direct link."""
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


async def run(plan: Plan, stage: Stage, flows: list[Flow]) -> None:
    """Add each flow: Figure 8a, then Table 1 with one path and with second ways."""
    check()
    single, table = singles(plan), cases(plan)
    numbers = range(1, len(table) + 1)
    stage.tell("Figure 8: the network starts", 0.0)
    async with overlay(max(len(single), len(table)), plan.seed) as network:
        acts: list[tuple[Kind, Sequence[int], list[Paths], str]] = [
            ("single", [0] * len(single), single, "Figure 8a: one path"),
            ("single", numbers, table, "Table 1: one path, over the routing broker"),
        ]
        for done, (kind, which, paths, words) in enumerate(acts):
            if stage.is_cut:
                return
            stage.tell(words, done / len(acts))
            flows += await _measured(plan, network, kind, which, paths)


async def _measured(
    plan: Plan, network: Overlay, kind: Kind, which: Sequence[int], paths: list[Paths]
) -> list[Flow]:
    """All of them at the same time."""
    await network.change(paths)
    topics = tuple(topic_of(pair, kind) for pair in range(len(paths)))
    job = Job(
        entrances=network.entrances, topics=topics, load=plan.deadline.load, lag_s=0.0,
        spaces=network.lan_spaces, by_topic=True,
    )  # fmt: skip
    rest = await _over(network, REST_S)
    async with working(job) as running:
        await running.begin()
        sent = await _over(network, plan.deadline.lasts_s)
        heard: Heard = await running.end()
    scale = plan.deadline.lasts_s / REST_S
    return [
        Flow(
            kind=kind, case=case, paths=each, lasts_s=plan.deadline.lasts_s, rest=idle.times(scale), sent=busy,
            own=heard.by_topic[topic.name], late_p99_ms=heard.late_ms.p99,
        )
        for case, each, idle, busy, topic in zip(which, paths, rest, sent, topics, strict=False)
    ]  # fmt: skip


async def _over(network: Overlay, seconds: float) -> list[Sent]:
    """What was on the links in so many seconds."""
    before = await network.sent()
    await asyncio.sleep(seconds)
    return [now - then for now, then in zip(await network.sent(), before, strict=True)]
