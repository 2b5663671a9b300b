"""How operators' commands reach the pipeline: over the bus of the network that settings or a state directory name."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer

from tocsin.cli.setting_options import network_settings
from tocsin.client.sql import Pipeline, connect
from tocsin.config import Nats
from tocsin.errors import OperatorError, StoreUnavailable
from tocsin.runtime.network.directory import datasets_directory
from tocsin.runtime.network.store_access import keys_directory

WaitOption = Annotated[
    float,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0.0,
        max=3_600.0,
        help="How long to wait for a pipeline that does not answer yet, for example while Spark starts.",
    ),
]
WAIT_S = 60.0  # the first start of Spark on a slow machine takes half of it
Done = TypeVar("Done")


class Found(msgspec.Struct, frozen=True):
    """A network, for an operator."""

    nats: Nats
    network: str
    storage: Path  # of its datasets, if it is on this machine
    state: str


def find(config: Path | None, sets: list[str] | None, state: str | None) -> Found:
    """The network that runs on the state directory, or the one that the settings name."""
    settings = network_settings(config, sets, state)
    return Found(settings.nats, settings.network, datasets_directory(settings), settings.state)


def reach(
    config: Path | None,
    sets: list[str] | None,
    state: str | None,
    wait_s: float,
    user: str = "",
    key: str = "",
) -> AbstractAsyncContextManager[Pipeline]:
    """The pipeline of that network; for a user of SQL with its key, or the operator."""
    found = find(config, sets, state)
    credentials = key or (str(keys_directory(found.state) / f"user-{user}.nk") if user else "")

    def on_wait() -> None:
        if sys.stderr.isatty():
            print(f"the pipeline does not answer yet; waiting up to {wait_s:g} s …", file=sys.stderr)

    return connect(
        found.nats,
        user=user,
        credentials=credentials,
        network=found.network,
        wait_s=wait_s,
        on_wait=on_wait,
    )


def ask(
    reached: AbstractAsyncContextManager[Pipeline], question: Callable[[Pipeline], Awaitable[Done]]
) -> Done:
    """Put one question to a pipeline; ``OperatorError`` if there is nobody."""

    async def asked() -> Done:
        async with reached as pipeline:
            return await question(pipeline)

    try:
        return asyncio.run(asked())
    except StoreUnavailable as error:
        raise unreachable(error) from None


def unreachable(error: StoreUnavailable) -> OperatorError:
    return OperatorError(
        f"the network cannot be reached: {error}",
        "Start it with `tocsin up`, name its state directory with --state, or its servers with --set nats.urls=…",
    )
