"""V-C, the full system: brokers and coordinators; publishers change their metadata and cycle among the subscribers.

At every broker each subscriber has as many publishers as at any other. A change moves a publisher to the next
subscriber, and travels with a message: that message is for the next one already.
"""

from __future__ import annotations

from typing import Literal

from tocsin.config import Broker
from tocsin_demo.network import network_of, running
from tocsin_labs.cqbs.crowd import Publisher, PublishersJob, Subscriber, SubscribersJob
from tocsin_labs.cqbs.forwarding import Forwarded, forward
from tocsin_labs.cqbs.plan import Whole
from tocsin_labs.stage import Stage


async def run(plan: Whole, servers: Literal[1, 3], seed: int, stage: Stage) -> Forwarded:
    names = [f"broker-{number}" for number in range(1, plan.brokers + 1)]
    settings = network_of(
        coordinators=plan.coordinators,
        servers=servers,
        brokers=tuple(Broker(id=name, cluster="lab") for name in names),
    )
    stage.tell("full system: the network starts", 0.0)
    async with running(settings) as network:
        homes = [network.servers[name] for name in names for _ in range(plan.subscribers_each)]
        crowd = SubscribersJob(
            tuple(Subscriber(*home, f'Reader = "reader-{number}"') for number, home in enumerate(homes)),
            str(stage.out / "full.csv"),
        )
        readers = [f"reader-{number}" for number in range(len(homes))]
        publishers = tuple(
            Publisher(
                *network.servers[name],
                f"{name}/{first}/{member}",
                "Reader",
                (*readers[first:], *readers[:first]),
            )
            for name in names
            for first in range(len(readers))
            for member in range(plan.publishers_each)
        )
        job = PublishersJob(publishers, plan.rate, plan.seconds, seed, plan.change_s)
        words = f"full system, {len(homes)} subscribers and {len(publishers)} publishers"
        return await forward(stage, words, crowd, job)
