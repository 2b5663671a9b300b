"""All designs, one after the other, each on every store that makes a difference to it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tocsin.store.servers.testing import LocalServers
from tocsin_demo.worker import Worker
from tocsin_labs.cqbs.coordinator import Coordinated, account
from tocsin_labs.cqbs.designs.work import Job
from tocsin_labs.cqbs.plan import Coordination, Design, Designs
from tocsin_labs.figures import Spread
from tocsin_labs.stage import Stage

WORK: Final = "tocsin_labs.cqbs.designs.work"


class Designed(msgspec.Struct, frozen=True):
    """One design, on a store of so many servers."""

    design: Design
    servers: int
    found: Coordinated
    cpu_ms: float  # of all brokers and coordinators, for one change
    behind: Spread | None  # milliseconds from when something was told until it was on disk
    equal: bool = False  # many subscribers ask the same
    asked_ms: float = 0.0  # until all queries were answered, all asked at once …
    asking_cpu_ms: float = 0.0  # … and the processor time of all brokers and coordinators for that

    @property
    def name(self) -> str:
        return name_of(self.design, self.servers, self.equal)


def name_of(design: Design, servers: int, equal: bool) -> str:
    """How rows, files and pictures call it."""
    name = design if design == "broadcast" else f"{design}-{servers}"
    return f"{name}-equal" if equal else name


async def run(plan: Designs, seed: int, stage: Stage, found: list[Designed]) -> None:
    """Add what was found of each."""
    todo = [(design, servers, False) for servers in plan.servers for design in plan.designs]
    todo = [each for each in todo if each[0] != "broadcast" or each[1] == plan.servers[0]]
    todo += [(design, servers, True) for servers in plan.servers for design in plan.equal_designs]
    for number, (design, servers, equal) in enumerate(todo):
        if stage.is_cut:
            break
        stage.tell(f"designs: {name_of(design, servers, equal)}", number / len(todo))
        load = plan.equal if equal else plan.load
        with tempfile.TemporaryDirectory(prefix="tocsin-lab-") as directory:
            made = await _one(load, seed, stage, design, servers, Path(directory), equal=equal)
            found.append(made)


async def _one(
    plan: Coordination,
    seed: int,
    stage: Stage,
    design: Design,
    servers: int,
    directory: Path,
    *,
    equal: bool,
) -> Designed:
    raw = stage.out / f"design-{name_of(design, servers, equal)}.csv"
    with LocalServers(directory, servers=servers) as store:
        job = Job(
            design=design,
            urls=store.urls,
            token=store.token,
            servers=servers,
            plan=plan,
            seed=seed,
            raw=str(raw),
        )
        worker = await Worker.start(WORK, "design", job)
        try:
            async with stage.ends(worker):
                done = await worker.until("done")
        finally:
            await worker.close()
    return Designed(
        design=design,
        servers=servers,
        found=account(plan, done, raw, None, job.coordinators, servers, partial=stage.is_cut),
        cpu_ms=done.found["cpu_s"] * 1_000 / max(1, done.count),
        behind=Spread.of(done.found["behind_ms"]),
        equal=equal,
        asked_ms=done.found["asked_s"] * 1_000,
        asking_cpu_ms=done.found["asking_cpu_s"] * 1_000,
    )
