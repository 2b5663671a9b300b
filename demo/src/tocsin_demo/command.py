"""``tocsin demo``: people walk through a city, things happen; brokers are killed or freeze; the account."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from tocsin.config import Log
from tocsin.errors import DeadlineExceeded, OperatorError, TocsinError
from tocsin.runtime import extra, logs
from tocsin_demo.city import City
from tocsin_demo.scene import Account, Scene, Script, homes, scene
from tocsin_demo.scene.application import CHANNEL
from tocsin_demo.scenery import account_table
from tocsin_demo.screen import Screen

SUBSCRIBERS: Final = 400  # as in the paper
SECONDS: Final = 110  # of the play: about two minutes with what follows it
SECONDS_LEAST, SECONDS_MOST = 10, 3_600
PERIOD_S: Final = 5
QUICK_SUBSCRIBERS, QUICK_SECONDS, QUICK_PERIOD_S = 24, 16, 2
REFRESH_S: Final = 0.5
ASK_S: Final = 2.0  # between two questions to the pipeline about the channel
HOME_S: Final = 60.0  # for everybody to be home before the account
VICTIM, FREEZING, CLUSTER = "north-1", "north-2", "south"
# When things happen, as a part of the time that the play takes.
KILLED, BACK, FROZEN, THAWED, CLUSTER_KILLED, CLUSTER_BACK = 0.14, 0.30, 0.42, 0.60, 0.72, 0.88
LOST, CUT_SHORT = 1, 1  # exit codes
VERDICTS: Final = {
    True: "[bold green]Nothing was lost, nothing came twice, everything came in order.[/]",
    False: "[bold red]A promise was broken: see the account.[/]",
}


def demo(
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed of the city, its people and the events.")
    ] = 1,
    seconds: Annotated[
        int | None,
        typer.Option("--seconds", metavar="N", help=f"How long it is played; {SECONDS} by default."),
    ] = None,
    subscribers: Annotated[
        int | None,
        typer.Option("--subscribers", metavar="N", help=f"People in the city; {SUBSCRIBERS} by default."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few people and a short run, as a smoke test.")
    ] = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Keep the network up afterwards and suggest what to try; Ctrl-C ends it."
        ),
    ] = False,
) -> None:
    """Play the prototype's scene: people walk through a city, and are told of emergencies near them while brokers fail.

    It starts a network of its own (NATS, a coordinator, two clusters of two brokers, Spark), defines the application in
    SQL, and has 400 subscribers walk. A broker is killed with -9 after a while, another one freezes, and later a whole
    cluster is killed. At the end it compares what Spark committed for every subscriber with what that subscriber got.
    The exit code is 1 if anything was lost.

    It uses free ports and a temporary directory, and leaves nothing behind. Your own network is `tocsin up`.
    """
    extra.check_installed()
    script = make_script(seed, seconds, subscribers, quick=quick)
    logs.configure("demo", Log(level="error"))
    try:
        found = asyncio.run(_demo(script, keep))
    except asyncio.CancelledError:
        raise typer.Exit(CUT_SHORT) from None
    raise typer.Exit(0 if found.kept else LOST)


def make_script(seed: int, seconds: int | None, subscribers: int | None, *, quick: bool) -> Script:
    """The scene to play. Raises ``OperatorError`` for what cannot be."""
    seconds = (QUICK_SECONDS if quick else SECONDS) if seconds is None else seconds
    if not SECONDS_LEAST <= seconds <= SECONDS_MOST:
        raise OperatorError(f"--seconds {seconds}", f"Give {SECONDS_LEAST} to {SECONDS_MOST}")
    people = (QUICK_SUBSCRIBERS if quick else SUBSCRIBERS) if subscribers is None else subscribers
    if people < 1:
        raise OperatorError(f"--subscribers {people}", "Give at least one")
    script = Script(
        homes=homes(people, seed=seed),
        city=City(seed=seed, seconds=seconds, interval_s=10, emergency_s=1 if quick else 2),
        period_s=QUICK_PERIOD_S if quick else PERIOD_S,
        workers=1 if quick else 2,
    )
    script.check()
    return script


async def _demo(script: Script, keep: bool) -> Account:
    playing = asyncio.current_task()
    assert playing is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, playing.cancel)
    screen = Screen(script.city.seconds)
    found: Account | None = None
    try:
        async with scene(script, screen.tell) as played:
            async with _shown(played, screen):
                found = await _play(played, screen)
            screen.print(account_table(found, tuple(map(played.course, played.failures))))
            screen.print(VERDICTS[found.kept])
            if keep:
                screen.print(to_try(played), wrap=False)
                async with _shown(played, screen):
                    await _stay(played, screen)
    except asyncio.CancelledError:
        if found is None:
            screen.print("Stopped before its end, in order: there is no account.")
            raise
        playing.uncancel()
    assert found is not None
    return found


@asynccontextmanager
async def _shown(played: Scene, screen: Screen) -> AsyncIterator[None]:
    """Keep the view up to date until then."""

    async def refresh() -> None:
        while True:
            screen.show(played)
            await asyncio.sleep(REFRESH_S)

    async def ask() -> None:
        while True:
            with contextlib.suppress(TocsinError):
                screen.channel = await played.backend.channel()
            await asyncio.sleep(ASK_S)

    with screen.live():
        tasks = [asyncio.create_task(refresh()), asyncio.create_task(ask())]
        try:
            yield
            screen.show(played)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _play(played: Scene, screen: Screen) -> Account:
    seconds, cluster = played.script.city.seconds, " and ".join(played.script.clusters()[CLUSTER])
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def until(part: float) -> None:
        end = began + part * seconds
        while (left := end - loop.time()) > 0:
            played.check()
            await asyncio.sleep(min(left, REFRESH_S))

    screen.tell("people walk, and things happen")
    await played.begin()
    await until(KILLED)
    screen.tell(f"{VICTIM} is killed (kill -9)")
    played.kill(VICTIM)
    await until(BACK)
    screen.tell(f"{VICTIM} comes back, and its subscribers go home")
    played.bring_back(VICTIM)
    await until(FROZEN)
    screen.tell(f"{FREEZING} freezes (kill -STOP): its connections stay open, and say nothing")
    played.freeze(FREEZING)
    await until(THAWED)
    screen.tell(f"{FREEZING} goes on, and its subscribers go home")
    played.bring_back(FREEZING)
    await until(CLUSTER_KILLED)
    screen.tell(f"the cluster {CLUSTER} is killed: {cluster}")
    played.kill_cluster(CLUSTER)
    await until(CLUSTER_BACK)
    screen.tell(f"{cluster} come back")
    played.bring_back()
    await until(1.0)
    screen.tell("the play is over; what has happened is executed")
    with contextlib.suppress(DeadlineExceeded):  # a user that is not at home has a broker all the same
        await played.at_home(HOME_S)
    await played.finish()
    screen.tell("the account: what was committed, and what has arrived")
    return await played.account()


async def _stay(played: Scene, screen: Screen) -> None:
    await played.backend.ask(f"RESUME CHANNEL {CHANNEL}")
    screen.tell("it stays up; Ctrl-C ends it")
    while True:
        played.check()
        await asyncio.sleep(REFRESH_S)


def to_try(played: Scene) -> str:
    """Where everything is, and what to do with it."""
    own = os.path.relpath(sys.argv[0]) if Path(sys.argv[0]).name == "tocsin" else "tocsin"
    state = f"--state {played.network.directory}"
    servers = {broker: f"{host}:{port}" for broker, (host, port) in played.network.servers.items()}
    victim = played.brokers[VICTIM].pid
    middle = played.script.city.width_m // 2, played.script.city.height_m // 2
    number, user = played.publisher.published + 1_000, played.names[min(7, len(played.names) - 1)]
    report = (
        f'{{"number": {number}, "id": "storm-{number}", "kind": "storm", "level": 3, '
        f'"place": {{"x": {middle[0]}, "y": {middle[1]}}}, "radius": 5000}}'
    )
    return "\n".join(
        (
            "",
            "It stays up: " + ", ".join(f"{broker} is at {address}" for broker, address in servers.items()),
            "In another terminal:",
            f"  {own} sub --at {servers[VICTIM]} '$channel/{CHANNEL}/{user}'",
            f"  {own} pub --at {servers[VICTIM]} --qos 1 city/storm '{report}'",
            f"  {own} sql {state} -c 'SELECT kind, COUNT(*) AS n FROM RESULTS OF {CHANNEL} GROUP BY kind'",
            f"  {own} chaos {state} --kill cluster/{CLUSTER}",
            f"  kill -9 {victim}      # {VICTIM}",
            "",
        )
    )
