"""A network on one machine: which processes it is made of, and how settings become those of this machine.

Stages, each started when the one before is ready: the embedded NATS servers (none if ``nats.urls`` names others), the
coordinators, the brokers; where Spark is installed the pipeline beside the coordinators, and the feeder last, with the
bridges. The network is ready when its brokers are: Spark takes its time, and nobody who publishes or subscribes waits
for it.
"""

from __future__ import annotations

import os
import sys
from itertools import repeat
from typing import Final

import msgspec
import structlog

from tocsin.config import Bridge, Settings, to_json
from tocsin.core.supervision.machine import Child
from tocsin.errors import OperatorError
from tocsin.model.network import broker_address
from tocsin.runtime import extra
from tocsin.runtime.network import leash, streams
from tocsin.runtime.network.directory import (
    BrokerAddress,
    DoorAddress,
    FeederAddress,
    NetworkFile,
    StateDirectory,
    datasets_directory,
    read_network,
)
from tocsin.runtime.network.ports import settle
from tocsin.runtime.network.store_access import STORE_NAME, access, adopt, embedded, security
from tocsin.runtime.network.supervisor import Plan
from tocsin.runtime.process import SETTINGS
from tocsin.runtime.security.authority import Authority
from tocsin.runtime.security.credentials import certificates_directory
from tocsin.runtime.security.files import Guard
from tocsin.store.nats.login import login_of
from tocsin.store.servers.embedded import (
    ServerPlan,
    check_program,
    find_program,
    plan_servers,
    wait_ready,
    write_access,
)

STORE_STAGE, COORDINATOR_STAGE, BROKER_STAGE, FEEDER_STAGE = 0, 1, 2, 3
PIPELINE_STAGE = COORDINATOR_STAGE  # it needs the store only, and Spark is what takes longest to start
PROBE_DEADLINE_S = 10.0  # of one try; tries are repeated while the server lives
EVERY_ADDRESS = ("0.0.0.0", "::", "")
PASSWORD: Final = "TOCSIN_PASSWORD"  # of a client of ours
LOCAL = ("localhost", "127.0.0.1", "::1")


def prepare(settings: Settings, directory: StateDirectory, *, auto_ports: bool) -> Settings:
    """The settings of this run: an absolute directory, a secret, free ports, and what is left open (``auto``)."""
    nats, pipeline, chaos = settings.nats, settings.pipeline, settings.chaos
    if (
        chaos.enabled == "auto"
    ):  # only this user reaches the sockets, and this user may kill the processes anyway
        chaos = msgspec.structs.replace(chaos, enabled="always")
    if pipeline.enabled == "always":
        extra.check_installed()
    elif pipeline.enabled == "auto":
        pipeline = msgspec.structs.replace(pipeline, enabled="never" if extra.missing() else "always")
    if not nats.urls:
        # Before anything is started: a missing or unknown program is the operator's to put right.
        check_program(find_program(nats.binary))
        if nats.token:
            raise OperatorError(
                "embedded servers take no token: they know each role by a key of its own",
                "Leave nats.token out, or name servers of your own in nats.urls",
            )
        nats = embedded(nats, directory.path)
        directory.forget_token()
        if adopt(directory.path):
            structlog.get_logger().info("the streams of the store have an account of their own now")
    Guard(settings).close()  # refuses files of users, rules and certificates that cannot be used
    state = str(directory.path)
    settings = msgspec.structs.replace(settings, state=state, nats=nats, pipeline=pipeline, chaos=chaos)
    ensure_certificates(settings)
    return settle(settings, auto=auto_ports, previous=read_network(directory.path))


def ensure_certificates(settings: Settings) -> Authority:
    """See that every process that ``tocsin up`` starts has a certificate of the network's own authority.

    Certificates that are valid for a while are kept, so that this may be repeated.
    """
    authority = Authority.open_or_make(certificates_directory(settings.state), settings.network)
    for broker in settings.brokers:
        authority.ensure(broker.id, role="broker", hosts=_hosts(broker.links_at()))
    for number in range(1, settings.coordinators + 1):
        authority.ensure(f"coordinator-{number}", role="coordinator")
    for name in ("pipeline", "feeder", "operator"):
        authority.ensure(name, role=name)
    if not settings.nats.urls:
        for number in range(1, settings.nats.servers + 1):
            hosts = _hosts(STORE_NAME, settings.nats.host)
            authority.ensure(f"store-{number}", role="store", hosts=hosts)
    return authority


def _hosts(*found: str) -> tuple[str, ...]:
    """Where a process that listens on these is found; from this machine always as ``localhost``."""
    named = [each for each in found if each not in EVERY_ADDRESS]
    return tuple(dict.fromkeys((*named, *LOCAL)))


def addresses(settings: Settings) -> NetworkFile:
    """The data that clients on this machine need."""
    brokers = tuple(map(BrokerAddress.of, settings.brokers))
    feeds, feeder, storage = settings.feeds, None, ""
    if settings.pipeline.enabled == "always":
        feeder = FeederAddress(feeds.http_host, feeds.http_port, feeds.https_port)
        storage = str(datasets_directory(settings))
    door = DoorAddress.of(settings.door)
    return NetworkFile(
        settings.network, os.getpid(), settings.nats.addresses(), brokers, feeder, storage, door
    )


def plans(settings: Settings, directory: StateDirectory, *, empty: bool = False) -> tuple[Plan, ...]:
    """The children, from settings that were prepared; writes the configuration of the embedded servers.

    The last server is ready when the network's streams are there; ``empty``: they are not made.
    """
    nats, handover = settings.nats, SETTINGS.seal(to_json(settings))
    least = settings.routing.least
    reserves = {each for tier in settings.tiers().values() for each in tier[least:]} if least else set()
    servers: tuple[ServerPlan, ...] = ()
    if not nats.urls:
        servers = plan_servers(
            directory=directory.nats,
            host=nats.host,
            port=nats.port,
            servers=nats.servers,
            binary=nats.binary,
            security=security(settings),
        )
    return (
        *(_server(plan, settings, makes=plan is servers[-1] and not empty) for plan in servers),
        *(
            Plan(Child(name, COORDINATOR_STAGE), own_command("coordinator", "--id", name), handover)
            for name in (f"coordinator-{number}" for number in range(1, settings.coordinators + 1))
        ),
        *(
            Plan(
                Child(broker_address(broker.id), BROKER_STAGE, reserve=broker.id in reserves),
                own_command("broker", broker.id),
                handover,
            )
            for broker in settings.brokers
        ),
        *(
            Plan(Child(name, stage, awaited=False), own_command(name), handover)
            for name, stage in (("pipeline", PIPELINE_STAGE), ("feeder", FEEDER_STAGE))
            if settings.pipeline.enabled == "always"
        ),
        *map(_bridge, settings.bridges, repeat(settings.state)),
    )


def growing(settings: Settings) -> dict[str, tuple[str, ...]]:
    """The children of each tier, in order, if tiers grow and shrink."""
    if not settings.routing.least:
        return {}
    return {tier: tuple(map(broker_address, brokers)) for tier, brokers in settings.tiers().items()}


def rewrite_users(settings: Settings, directory: StateDirectory) -> None:
    """Write the keys that the embedded servers admit; they read the file when they get SIGHUP."""
    for number in range(1, settings.nats.servers + 1):
        write_access(directory.nats / f"store-{number}", access(settings))


def _server(plan: ServerPlan, settings: Settings, *, makes: bool) -> Plan:

    async def ready() -> None:
        await wait_ready(
            plan.url, login_of(settings.nats, "operator"), PROBE_DEADLINE_S
        )  # keys may be replaced at the same time
        if makes:
            await streams.prepare(settings, pipeline=settings.pipeline.enabled == "always")

    child = Child(plan.name, STORE_STAGE, reports=False)
    # Without a limit the server's heap grows to what it read and wrote in the last ten seconds, and doubles.
    limit = {"GOMEMLIMIT": f"{settings.budgets.store_bytes}B"}
    return Plan(child, leash.command(os.getpid(), plan.argv), ready=ready, variables=limit)


def _bridge(bridge: Bridge, state: str) -> Plan:
    """It is a client as any other, and is told no settings; its options are in its command."""
    child = Child(f"bridge/{bridge.name}", FEEDER_STAGE, awaited=False)
    secret = {PASSWORD: os.environ[PASSWORD]} if bridge.user and PASSWORD in os.environ else {}
    return Plan(child, own_command(*bridge.command(state)), SETTINGS.seal(b"{}"), variables=secret)


def own_command(*arguments: str) -> tuple[str, ...]:
    """A command of ours. -P: a file in the working directory must not stand in for a module."""
    return (sys.executable, "-P", "-m", "tocsin", *arguments)
