"""``tocsin up``: a whole network on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import structlog
import typer

from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, read
from tocsin.cli.verbs.up_board import Board, board
from tocsin.config import Settings
from tocsin.core.supervision.machine import Failure, Row
from tocsin.errors import OperatorError, StoreError
from tocsin.runtime import extra, logs
from tocsin.runtime.machines.clock import now_us
from tocsin.runtime.network import moving, streams
from tocsin.runtime.network import plan as network
from tocsin.runtime.network.directory import StateDirectory
from tocsin.runtime.network.ephemeral import ephemeral_directory
from tocsin.runtime.network.store_access import key_files
from tocsin.runtime.network.supervisor import Supervisor, log_path
from tocsin.runtime.security.credentials import BUNDLE, certificates_directory
from tocsin.runtime.security.followed_files import Signature, signature
from tocsin.store.nats.login import ROLE

REFRESH_S = 1.0
RENEW_S = 86_400.0  # certificates last for months
NO_SPARK = "no datasets and channels here, for Spark is not installed: pip install 'tocsin[spark]'"
REFUSED = 2  # the exit code of a child that the operator has to help


def up(
    config: ConfigOption = None,
    state: StateOption = None,
    ephemeral: Annotated[
        bool,
        typer.Option("--ephemeral", help="Keep state in a temporary directory and remove it at the end."),
    ] = False,
    auto_ports: Annotated[
        bool,
        typer.Option("--auto-ports", help="Choose free ports instead of the settings' ports."),
    ] = False,
    sets: SetOption = None,
) -> None:
    """Start a network on this machine: NATS, a coordinator and the brokers of the settings, each a process.

    Where the extra `tocsin[spark]` is installed, the pipeline (datasets, feeds, channels) and the feeder are started
    too. The network is ready when its brokers are; the pipeline's row says when Spark is.

    It shows the addresses and the health of every process, restarts those that end, and stops all of them in
    order on Ctrl-C (twice: at once). Start it again on the same state directory, and it goes on where it was.

    Two clusters of three brokers, on ports 1883 to 1888:

        tocsin up

    Beside whatever else runs here, leaving nothing:

        tocsin up --ephemeral --auto-ports

    With settings of your own, and a store that survives the loss of one server:

        tocsin up -c tocsin.toml --set nats.servers=3

    Without Spark, though it is installed:

        tocsin up --set pipeline.enabled=never

    If standard output is no terminal, one JSON line says when everything is ready and where; the log is on
    standard error.
    """
    if ephemeral and state is not None:
        raise OperatorError("--ephemeral and --state exclude each other", "Give one of them")
    settings = read(config, sets, state).settings
    logs.configure("up", settings.log)
    hint = NO_SPARK if settings.pipeline.enabled == "auto" and extra.missing() else ""
    with _directory(settings, ephemeral) as directory:
        settings = network.prepare(settings, directory, auto_ports=auto_ports)
        file = network.addresses(settings)
        directory.write_network(file)
        if hint:
            structlog.get_logger().info(hint)
        with board(file, str(directory.path), hint=hint) as shown:
            failure = asyncio.run(_look_after(settings, directory, shown))
        raise typer.Exit(0 if failure is None else _explain(failure, directory, ephemeral))


@contextlib.contextmanager
def _directory(settings: Settings, ephemeral: bool) -> Iterator[StateDirectory]:
    if ephemeral:
        with ephemeral_directory() as temporary:
            yield temporary
        return
    directory = StateDirectory.hold(Path(settings.state))
    try:
        yield directory
    finally:
        directory.release()


async def _look_after(settings: Settings, directory: StateDirectory, shown: Board) -> Failure | None:
    began = time.monotonic()
    if not settings.nats.urls:
        await moving.move(settings, directory)
    elif ROLE in settings.nats.credentials:
        await _prepare_elsewhere(settings)

    def on_ready() -> None:
        shown.ready(supervisor.rows(), time.monotonic() - began)

    def on_change() -> None:
        shown.show(supervisor.rows(), now_us())

    supervisor = Supervisor(
        network.plans(settings, directory),
        logs=directory.logs,
        inherit=(directory.lock,),
        tiers=network.growing(settings),
        on_ready=on_ready,
        on_change=on_change,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.stop, f"signal:{signal.Signals(number).name}")
    loop.add_signal_handler(signal.SIGHUP, _read_again, supervisor)
    refreshing = asyncio.create_task(_refresh(on_change))
    tending = asyncio.create_task(_tend_store(settings, directory, supervisor))
    try:
        return await supervisor.run()
    finally:
        refreshing.cancel()
        tending.cancel()


async def _prepare_elsewhere(settings: Settings) -> None:
    """Make the streams on servers that know roles, if the operator's key is on this machine."""
    try:
        await streams.prepare(settings, pipeline=settings.pipeline.enabled == "always")
    except (OperatorError, StoreError) as error:
        structlog.get_logger().warning(
            "streams are not prepared here: processes take them as they are", problem=str(error)
        )


async def _tend_store(settings: Settings, directory: StateDirectory, supervisor: Supervisor) -> None:
    """Renew certificates that end soon, and have the store's servers read changed certificates and keys; our own
    processes notice changes themselves.
    """
    renewed_s, before, keys = time.monotonic(), _signatures(settings), _keys(settings)
    while True:
        await asyncio.sleep(REFRESH_S)
        if time.monotonic() - renewed_s > RENEW_S:
            renewed_s = time.monotonic()
            try:
                await asyncio.to_thread(network.ensure_certificates, settings)
            except OperatorError as error:
                structlog.get_logger().error("certificates cannot be renewed", problem=str(error))
        changed = (found := _signatures(settings)) != before
        if not settings.nats.urls and (now := _keys(settings)) != keys:
            try:
                network.rewrite_users(settings, directory)
                changed, keys = True, now
            except OperatorError as error:
                structlog.get_logger().error("changed keys are not used", problem=str(error))
        if changed:
            before = found
            _hang_up(row for row in supervisor.rows() if row.stage == network.STORE_STAGE)


def _read_again(supervisor: Supervisor) -> None:
    """Have every process read its files again: users, rules and certificates."""
    structlog.get_logger().info("files are read again", signal="SIGHUP")
    _hang_up(supervisor.rows())


def _hang_up(rows: Iterable[Row]) -> None:
    for row in rows:
        if row.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(row.pid, signal.SIGHUP)


def _keys(settings: Settings) -> tuple[tuple[str, Signature], ...]:
    """The signatures of the files that name the keys that the store's servers admit."""
    return tuple((path.name, signature(path)) for path in key_files(settings.state))


def _signatures(settings: Settings) -> tuple[Signature, ...]:
    """The signatures of the certificates that the store's servers have read."""
    directory = certificates_directory(settings.state)
    return tuple(map(signature, (directory / BUNDLE, *sorted(directory.glob("store-*.pem")))))


async def _refresh(show: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(REFRESH_S)
        show()


def _explain(failure: Failure, directory: StateDirectory, ephemeral: bool) -> int:
    where = (
        "Run it with --state DIR to keep its log"
        if ephemeral
        else f"Its log is {log_path(directory.logs, failure.child)}"
    )
    print(f"tocsin: {failure.child} does not start: {failure.words.rstrip('.')}. {where}.", file=sys.stderr)
    return 2 if failure.code == REFUSED else 1
