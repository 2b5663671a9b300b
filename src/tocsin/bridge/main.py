"""The process of a bridge: an AMQP connection, a client of the network that publishes, and one for each outward rule.

It hands events to the machines of the rules and carries out their effects. Each outward rule has a session of its own
at the network, so that a rule whose AMQP address takes nothing holds back no other, and a rule that is gone leaves
nothing behind but a session that expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import structlog
from mqtt5 import PublishPacket

from tocsin.bridge.inbox import Deliveries
from tocsin.bridge.inward import Inward
from tocsin.bridge.limits import Limits, delay_us
from tocsin.bridge.line import AmqpLine
from tocsin.bridge.outward import Outward, receive_max
from tocsin.bridge.peer import (
    Attached,
    Credited,
    Decided,
    Delivered,
    Detached,
    Opened,
    Oversized,
    PeerEvent,
)
from tocsin.bridge.rules import InRule, OutRule
from tocsin.bridge.settings import Endpoint
from tocsin.bridge.signals import (
    Acknowledge,
    Attach,
    Came,
    CameTooLarge,
    Connected,
    Credit,
    Disconnected,
    Grant,
    Heard,
    LinkDown,
    LinkUp,
    Note,
    Publish,
    Published,
    PublishFailed,
    Settle,
    Settled,
    Transmit,
)
from tocsin.client import AsyncClient, Message
from tocsin.client.options import Connection
from tocsin.core.machine import Effect, Event, SetTimer
from tocsin.errors import BrokerUnreachable, SubscriptionRefused, TocsinError, Unencodable, WireError
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Tasks
from tocsin.runtime.process import Process

FOREVER_S: Final = 10.0 * 86_400  # a client waits for its broker, not for a deadline
STATUS_S: Final = 10.0
STOP_S: Final = 5.0  # for what is under way to be settled; less than a process has to stop

MakeClient = Callable[..., AsyncClient]


class Plan(msgspec.Struct, frozen=True):
    """A bridge to run."""

    name: str
    dead: str
    limits: Limits
    ins: tuple[InRule, ...]
    outs: tuple[OutRule, ...]
    endpoint: Endpoint
    tls: ssl.SSLContext | None  # to the AMQP peer
    durable_links: bool
    make_client: MakeClient  # of the network, with options of a client


class _Rule:
    """The shell of a rule's machine."""

    def __init__(self, bridge: Bridge, machine: Inward | Outward) -> None:
        self.machine = machine
        self.link = machine.rule.link
        self.client: AsyncClient | None = None  # of an outward rule
        self._bridge = bridge
        self._log = structlog.get_logger().bind(rule=str(machine.rule))
        self._shell = Shell(machine, self._carry_out, bridge.fail, answer=self.tell)
        self._packets: dict[int, PublishPacket] = {}  # of an outward rule, by token
        self._token = 0

    def tell(self, event: Event) -> None:
        self._shell.post(event)
        self._bridge.line.flush()
        self._bridge.moved.set()

    def hear(self, packet: PublishPacket) -> None:
        """A message of the network; while the process stops it is left to the next one."""
        if self._bridge.stopping:
            return
        self._token += 1
        packet_id = packet.packet_id or None
        if packet_id is not None:
            self._packets[self._token] = packet
        self.tell(Heard(token=self._token, message=Message.of(packet), packet_id=packet_id))

    def _carry_out(self, effect: Effect) -> None:
        peer = self._bridge.line.peer
        match effect:
            case SetTimer():
                self._shell.carry_out(effect)
            case Publish(token=token, publication=publication):
                self._bridge.publish(self, token, publication)
            case Acknowledge(token=token):
                if self.client is not None:
                    self.client.settle((self._packets.pop(token),))
            case Note(event=event, reason=reason, warn=warn):
                (self._log.warning if warn else self._log.info)(event, reason=reason)
            case _ if peer is None:
                return  # the connection has just broken, and ``line_down`` tells the machine
            case Attach():
                self._bridge.attach(self)
            case Grant(credit=credit):
                if not self._bridge.stopping:
                    peer.grant(self.link, credit)
            case Settle(delivery=delivery, outcome=outcome):
                peer.settle(self.link, delivery, outcome)
            case Transmit(token=token, payload=payload, settled=settled):
                peer.send(self.link, token.to_bytes(8), payload, settled=settled)

    def close(self) -> None:
        self._shell.close()


class Bridge:
    """A running bridge."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._log = structlog.get_logger()
        self.line = AmqpLine(plan.endpoint, plan.tls, f"tocsin-{plan.name}", self)
        self.stopping = False
        self.moved = asyncio.Event()  # something happened to a message
        self._ins = [_Rule(self, Inward(each, plan.name, plan.dead, plan.limits)) for each in plan.ins]
        self._outs = [
            _Rule(self, Outward(each, plan.name, f"{plan.name}-{each.link}", plan.dead, plan.limits))
            for each in plan.outs
        ]
        self._rules = {each.link: each for each in (*self._ins, *self._outs)}
        self._publisher = self._client(f"bridge-{plan.name}-in")
        self._publishing = Tasks("publishing to the network", self.fail)
        self._failed: asyncio.Future[None] | None = None  # done with the error that ends the process
        self._amqp_problem = "not connected yet"
        self._problems: dict[str, str] = {}  # of clients of the network, by client id

    def _client(self, client_id: str, **options: Any) -> AsyncClient:
        def changed(connection: Connection) -> None:
            self._network_changed(client_id, connection)

        return self._plan.make_client(
            client_id=client_id, deadline_s=FOREVER_S, on_connection=changed, **options
        )

    # ── the process ─────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, process: Process) -> None:
        """Carry messages until the process is asked to stop. Raises what no retry would cure."""
        self._failed = asyncio.get_running_loop().create_future()
        tasks = [
            asyncio.create_task(self.line.run(), name="amqp"),
            asyncio.create_task(self._publisher.connect(), name="publisher"),
            *(asyncio.create_task(self._subscribe(rule), name=rule.link) for rule in self._outs),
            asyncio.create_task(self._report(process), name="status"),
        ]
        stop = asyncio.create_task(process.stopped(), name="stop")
        try:
            waiting: set[asyncio.Future[Any]] = {stop, self._failed, *tasks}
            while stop in waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            await self._wind_up()
        finally:
            self.stopping = True
            self.line.close()
            for rule in self._rules.values():
                rule.close()
            for task in (*tasks, stop):
                task.cancel()
            await self._publishing.wait_closed()
            await asyncio.gather(*tasks, stop, return_exceptions=True)
            clients = [self._publisher, *(rule.client for rule in self._outs if rule.client is not None)]
            await asyncio.gather(*(each.close(settle=False) for each in clients))
        self._log.info("bridge status", **self.status())

    async def _wind_up(self) -> None:
        """Take nothing new, and let what is under way be settled."""
        self.stopping = True
        if (peer := self.line.peer) is not None:
            for rule in self._ins:
                peer.grant(rule.link, 0)
            self.line.flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while len(self._publishing) or any(rule.machine.under_way for rule in self._outs):
                    self.moved.clear()
                    await self.moved.wait()

    def _network_changed(self, client_id: str, connection: Connection) -> None:
        if connection.up:
            self._problems.pop(client_id, None)
            self._log.info("connected to the network", client=client_id, server=connection.server)
            return
        self._problems[client_id] = connection.reason
        if self.stopping:
            return
        self._log.warning(
            "no connection to the network",
            client=client_id,
            server=connection.server,
            reason=connection.reason,
            retry_s=connection.retry_s,
        )
        if connection.retry_s is None:
            host, _, port = connection.server.rpartition(":")
            self.fail(BrokerUnreachable(host, int(port), connection.reason))

    # ── the network ─────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, rule: _Rule, token: int, publication: Any) -> None:
        task = self._publishing.spawn(self._publish(rule, token, publication))
        task.add_done_callback(lambda task: self.moved.set())

    def fail(self, error: BaseException) -> None:
        """End the process with this error, unless it ends already."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _publish(self, rule: _Rule, token: int, publication: Any) -> None:
        try:
            await self._publisher.send(publication)
        except TocsinError as error:
            final = isinstance(error, WireError | Unencodable)
            rule.tell(PublishFailed(token=token, reason=str(error), final=final))
        else:
            rule.tell(Published(token=token))

    async def _subscribe(self, rule: _Rule) -> None:
        """Keep the subscription of an outward rule; one that is refused is asked for again."""
        limits, wanted = self._plan.limits, rule.machine.rule
        assert isinstance(wanted, OutRule)
        rule.client = client = self._client(
            f"bridge-{self._plan.name}-{rule.link}",
            session_expiry_s=limits.session_expiry_s,
            receive_max=receive_max(limits),
        )
        await client.connect()
        refusals = 0
        while True:
            inbox = Deliveries(client, wanted.subscription, rule.hear)
            try:
                await inbox.open()
                rule.machine.figures.problem = ""
                refusals = 0
                await inbox.ended.wait()
                raise inbox.why or AssertionError("a subscription ended without a reason")
            except SubscriptionRefused as error:
                refusals += 1
                rule.machine.figures.problem = str(error)
                self._log.warning("the network refused a subscription", rule=str(wanted), reason=str(error))
                await asyncio.sleep(delay_us(refusals) / 1_000_000)

    # ── the AMQP peer ───────────────────────────────────────────────────────────────────────────────────────

    def attach(self, rule: _Rule) -> None:
        peer, wanted = self.line.peer, rule.machine.rule
        assert peer is not None
        try:
            peer.attach(
                rule.link,
                wanted.address,
                receives=isinstance(wanted, InRule),
                max_bytes=self._plan.limits.message_max_bytes,
                durable=self._plan.durable_links,
            )
        except ValueError as error:
            rule.tell(LinkDown(reason=str(error)))

    def line_heard(self, event: PeerEvent) -> None:
        match event:
            case Opened(container=container):
                self._amqp_problem = ""
                self._log.info(
                    "connected to the AMQP peer", peer=str(self._plan.endpoint), container=container
                )
                self._tell_all(Connected())
            case Attached(link=link, max_bytes=max_bytes):
                self._rules[link].tell(LinkUp(max_bytes=max_bytes))
            case Detached(link=link, reason=reason):
                self._rules[link].tell(LinkDown(reason=reason))
            case Credited(link=link, credit=credit):
                self._rules[link].tell(Credit(credit=credit))
            case Delivered(link=link, delivery=delivery, payload=payload, settled=settled):
                self._rules[link].tell(Came(delivery=delivery, payload=payload, settled=settled))
            case Oversized(link=link, delivery=delivery, size=size, settled=settled):
                self._rules[link].tell(CameTooLarge(delivery=delivery, size=size, settled=settled))
            case Decided(link=link, tag=tag, outcome=outcome):
                self._rules[link].tell(Settled(token=int.from_bytes(tag), outcome=outcome))

    def line_down(self, reason: str, retry_s: float) -> None:
        if not self.stopping:
            self._log.warning(
                "no connection to the AMQP peer",
                peer=str(self._plan.endpoint),
                reason=reason,
                retry_s=round(retry_s, 1),
            )
        self._amqp_problem = reason
        self._tell_all(Disconnected())

    def _tell_all(self, event: Event) -> None:
        for rule in self._rules.values():
            rule.tell(event)

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _report(self, process: Process) -> None:
        said: dict[str, object] = {}
        while True:
            facts = self.status()
            process.report("degraded" if facts["problem"] else "ready", **facts)
            if facts != said:
                self._log.info("bridge status", **facts)
                said = facts
            await asyncio.sleep(STATUS_S)

    def status(self) -> dict[str, object]:
        """How the bridge is, in figures since it began."""
        problems = [
            f"AMQP: {self._amqp_problem}" if self._amqp_problem else "",
            *(f"network: {each}" for each in sorted(set(self._problems.values()))),
            *(
                f"{each.machine.rule}: {each.machine.figures.problem}"
                for each in self._rules.values()
                if each.machine.figures.problem
            ),
        ]
        return {
            "inward": _sum(self._ins),
            "outward": _sum(self._outs),
            "problem": "; ".join(each for each in problems if each)[:1_000],
        }


def _sum(rules: Sequence[_Rule]) -> str:
    figures = [msgspec.structs.asdict(each.machine.figures) for each in rules]
    names = ("taken", "passed", "retried", "looped", "expired", "dead", "refused", "dropped")
    totals = {name: sum(each[name] for each in figures) for name in names}
    waiting = sum(each.machine.in_flight for each in rules)
    shown = [f"{count} {name}" for name, count in totals.items() if count or name in ("taken", "passed")]
    return ", ".join([*shown, f"{waiting} in flight"])


async def serve(plan: Plan, process: Process) -> None:
    """Run a bridge until the process is asked to stop."""
    await Bridge(plan).run(process)
