"""V-A, a single broker: 1, 10 and 100 subscribers, ten publishers for each, five messages a second from each of those.

Groups have keys of their own, as in the paper: no subscriber's query mentions a key of another's streams. The paper's
own broker, if one runs somewhere, is given each load after ours.
"""

from __future__ import annotations

from pathlib import Path

from tocsin.client.address import Server
from tocsin.config import Broker
from tocsin_demo.network import network_of, running
from tocsin_labs.cqbs.crowd import Publisher, PublishersJob, Subscriber, SubscribersJob
from tocsin_labs.cqbs.forwarding import Forwarded, forward
from tocsin_labs.cqbs.plan import Single
from tocsin_labs.stage import Stage


async def run(
    plan: Single, seed: int, stage: Stage, peer: Server | None = None
) -> tuple[dict[int, Forwarded], dict[int, Forwarded]]:
    """By the number of subscribers: what our broker did, and the peer."""
    ours: dict[int, Forwarded] = {}
    theirs: dict[int, Forwarded] = {}
    settings = network_of(brokers=(Broker(id="single", cluster="lab"),))
    stage.tell("single broker: the network starts", 0.0)
    async with running(settings) as network:
        for subscribers in plan.subscribers:
            if not stage.is_cut:
                own = Server(*network.servers["single"])
                ours[subscribers] = await _one(plan, subscribers, own, seed, stage)
            if peer is not None and not stage.is_cut:
                theirs[subscribers] = await _one(plan, subscribers, peer, seed, stage, original=True)
    return ours, theirs


async def _one(
    plan: Single, subscribers: int, server: Server, seed: int, stage: Stage, *, original: bool = False
) -> Forwarded:
    host, port = server.host, server.port
    crowd = SubscribersJob(
        tuple(Subscriber(host, port, f'Group{n}/Wanted = "yes"') for n in range(subscribers)),
        str(samples(stage.out, subscribers, original=original)),
        original,
    )
    publishers = tuple(
        Publisher(host, port, f"group/{group}/{member}", f"Group{group}/Wanted", ("yes",))
        for group in range(subscribers)
        for member in range(plan.publishers_each)
    )
    job = PublishersJob(publishers, plan.rate, plan.seconds, seed, original=original)
    whose = "the original broker" if original else "single broker"
    words = f"{whose}, {subscribers} subscribers and {len(publishers)} publishers"
    return await forward(stage, words, crowd, job)


def samples(out: Path, subscribers: int, *, original: bool) -> Path:
    """The file of the samples."""
    return out / f"{'original' if original else 'single'}-{subscribers}.csv"
