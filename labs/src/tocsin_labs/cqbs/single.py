"""V-A, a single broker: 1, 10 and 100 subscribers, ten publishers for each, five messages a second from each of those.

Groups have keys of their own, as in the paper: no subscriber's query mentions a key of another's streams.
"""

from __future__ import annotations

from tocsin.config import Broker
from tocsin_demo.network import network_of, running
from tocsin_labs.cqbs.crowd import Publisher, PublishersJob, Subscriber, SubscribersJob
from tocsin_labs.cqbs.forwarding import Forwarded, forward
from tocsin_labs.cqbs.plan import Single
from tocsin_labs.stage import Stage


async def run(plan: Single, seed: int, stage: Stage) -> dict[int, Forwarded]:
    """By the number of subscribers."""
    found: dict[int, Forwarded] = {}
    settings = network_of(brokers=(Broker(id="single", cluster="lab"),))
    stage.tell("single broker: the network starts", 0.0)
    async with running(settings) as network:
        host, port = network.servers["single"]
        for subscribers in plan.subscribers:
            if stage.is_cut:
                break
            crowd = SubscribersJob(
                tuple(Subscriber(host, port, f'Group{n}/Wanted = "yes"') for n in range(subscribers)),
                str(stage.out / f"single-{subscribers}.csv"),
            )
            publishers = tuple(
                Publisher(host, port, f"group/{group}/{member}", f"Group{group}/Wanted", ("yes",))
                for group in range(subscribers)
                for member in range(plan.publishers_each)
            )
            job = PublishersJob(publishers, plan.rate, plan.seconds, seed)
            words = f"single broker, {subscribers} subscribers and {len(publishers)} publishers"
            found[subscribers] = await forward(stage, words, crowd, job)
    return found
