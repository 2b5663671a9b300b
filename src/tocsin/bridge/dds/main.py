"""The process of a bridge to DDS: one client of the network, one domain, and the mirror between them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
import structlog
from mqtt5 import PublishPacket

from tocsin.bridge.dds.announced import PRESENCE, WILL_DELAY_S, Presence
from tocsin.bridge.dds.mapping import JSON, STATE, Names
from tocsin.bridge.dds.mirror import Mirror
from tocsin.bridge.dds.signals import (
    Acknowledge,
    AskWanted,
    Connected,
    Drop,
    Heard,
    Lively,
    MakeReader,
    MakeWriter,
    Note,
    Pause,
    Publish,
    Published,
    PublishFailed,
    Replay,
    StopAsking,
    Subscribe,
    SubscriptionFailed,
    Unsubscribe,
    WantedTold,
    Write,
)
from tocsin.bridge.dds.space import Space
from tocsin.bridge.dds.typed import NotTyped
from tocsin.bridge.inbox import Deliveries
from tocsin.bridge.limits import delay_us
from tocsin.client import AsyncClient, Message
from tocsin.client.options import Connection
from tocsin.client.subscription import Inbox
from tocsin.core.machine import Effect, Event, SetTimer
from tocsin.errors import BrokerUnreachable, SubscriptionRefused, TocsinError, Unencodable, WireError
from tocsin.model.publication import Publication
from tocsin.runtime.machines.clock import token_hex
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Tasks
from tocsin.runtime.process import Process
from tocsin.wire.mqtt.topics import WANTED_PREFIX

FOREVER_S: Final = 10.0 * 86_400  # the client waits for its broker, not for a deadline
SESSION_EXPIRY_S: Final = 600  # of the session, while the network cannot be reached; each start has a new one
RECEIVE_MAX: Final = 1_000  # messages above QoS 0 on their way to DDS
STATUS_S: Final = 10.0
STOP_S: Final = 3.0  # for samples that were taken to be published

MakeClient = Callable[..., AsyncClient]


class Plan(msgspec.Struct, frozen=True):
    """A bridge to run."""

    name: str
    network: str
    domain: int
    names: Names
    payload: Literal["cdr", "json"]
    make_client: MakeClient  # of the network, with options of a client


class DdsBridge:
    """A running bridge."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._log = structlog.get_logger().bind(domain=plan.domain)
        incarnation = token_hex(4)
        self.mirror = Mirror(plan.name, plan.names, incarnation)
        self.space = Space(plan.domain, plan.network, plan.name, self.tell)
        self._client = plan.make_client(
            client_id=f"bridge-{plan.name}-{incarnation}",
            will=_will(plan, incarnation),
            will_delay_s=WILL_DELAY_S,
            deadline_s=FOREVER_S,
            session_expiry_s=SESSION_EXPIRY_S,
            receive_max=RECEIVE_MAX,
            on_connection=self._network_changed,
        )
        self._tasks = Tasks("a bridge to DDS", self._fail)
        self._failed: asyncio.Future[None] | None = None  # done with the error that ends the process
        self._inboxes: dict[str, tuple[Inbox[Any] | None, asyncio.Task[None]]] = {}
        self._packets: dict[
            int, PublishPacket
        ] = {}  # messages above QoS 0 that are not acknowledged, by token
        self._token = 0
        self._shell = Shell(self.mirror, self._carry_out, self._fail, answer=self.tell)
        self._volatile: list[tuple[int, Publication]] = []  # at QoS 0: one write for a turn of the loop
        self._network_problem = "not connected yet"
        self._moved = asyncio.Event()  # the network has, or does not want, a sample
        self.stopping = False

    # ── the process ─────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, process: Process) -> None:
        """Mirror until the process is asked to stop. Raises what no retry would cure."""
        self._failed = asyncio.get_running_loop().create_future()
        self.space.start()
        connecting = asyncio.create_task(self._client.connect(), name="network")
        reporting = asyncio.create_task(self._report(process), name="status")
        stop = asyncio.create_task(process.stopped(), name="stop")
        try:
            for effect in self.mirror.start():
                self._carry_out(effect)
            waiting: set[asyncio.Future[Any]] = {stop, self._failed, connecting, reporting}
            while stop in waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            await self._wind_up()
        finally:
            self.stopping = True
            await asyncio.get_running_loop().run_in_executor(None, self.space.close)
            self._shell.close()
            self._tasks.close()
            for task in (connecting, reporting, stop):
                task.cancel()
            await self._client.close(settle=False, end_session=True)
        self._log.info("bridge status", **self.status())

    async def _wind_up(self) -> None:
        """Let the network have what was taken."""
        self.stopping = True
        self.space.pause(True)
        for effect in self.mirror.stop():
            self._carry_out(effect)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while self.mirror.in_flight:
                    self._moved.clear()
                    await self._moved.wait()

    def _fail(self, error: BaseException) -> None:
        """End the process with this error, unless it ends already."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    def _network_changed(self, connection: Connection) -> None:
        if connection.up:
            self._network_problem = ""
            self._log.info("connected to the network", server=connection.server)
            if not self.stopping:
                self.tell(Connected())
            return
        self._network_problem = connection.reason
        if self.stopping:
            return
        facts = {"server": connection.server, "reason": connection.reason, "retry_s": connection.retry_s}
        self._log.warning("no connection to the network", **facts)
        if connection.retry_s is None:
            host, _, port = connection.server.rpartition(":")
            self._fail(BrokerUnreachable(host, int(port), connection.reason))

    # ── the mirror ──────────────────────────────────────────────────────────────────────────────────────────

    def tell(self, event: Event) -> None:
        """Hand an event to the mirror, and do what it wants."""
        self._shell.post(event)
        self._moved.set()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Write():
                self.space.write(effect)
            case Publish(token=token, publication=publication, entity=entity):
                self._publish(token, publication, entity)
            case Acknowledge(token=token):
                packet = self._packets.pop(token, None)
                if packet is not None:
                    self._client.settle((packet,))
            case MakeReader() | MakeWriter():
                self.space.make(effect)
            case Drop(entity=entity):
                self.space.drop(entity)
            case Replay():
                self.space.replay(effect)
            case Pause(paused=paused):
                self.space.pause(paused)
            case Lively(entity=entity, lively=lively):
                self.space.lively(entity, lively)
            case Subscribe(topic=topic):
                self._inboxes[topic] = (None, self._tasks.spawn(self._subscribe(topic), topic))
            case Unsubscribe(topic=topic):
                self._unsubscribe(topic)
            case AskWanted(topic=topic):
                name = WANTED_PREFIX + topic
                self._inboxes[name] = (None, self._tasks.spawn(self._ask_wanted(topic), name))
            case StopAsking(topic=topic):
                self._unsubscribe(WANTED_PREFIX + topic)
            case SetTimer():
                self._shell.carry_out(effect)
            case Note(event=event, facts=facts, warn=warn):
                (self._log.warning if warn else self._log.info)(event, **facts)
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    # ── the network ─────────────────────────────────────────────────────────────────────────────────────────

    def _publish(self, token: int, publication: Publication, entity: str) -> None:
        if entity and self._plan.payload == "json":
            key = any(name == STATE for name, _ in publication.user_properties)  # else the instance is alive
            try:
                payload = self.space.json_of(entity, publication.payload, key=key)
            except NotTyped as error:
                failed = PublishFailed(token=token, reason=str(error), final=True)
                asyncio.get_running_loop().call_soon(self.tell, failed)
                return
            publication = msgspec.structs.replace(
                publication, payload=payload, content_type=JSON, payload_format=1
            )
        if publication.qos:
            self._tasks.spawn(self._send(token, publication))
            return
        if not self._volatile:
            asyncio.get_running_loop().call_soon(self._flush)
        self._volatile.append((token, publication))

    def _flush(self) -> None:
        batch, self._volatile = self._volatile, []
        self._tasks.spawn(self._send_volatile(batch))

    async def _send_volatile(self, batch: list[tuple[int, Publication]]) -> None:
        for token, publication in batch:
            try:
                await self._client.send(publication)
            except TocsinError as error:
                self.tell(PublishFailed(token=token, reason=str(error), final=True))
            else:
                self.tell(Published(token=token))

    async def _send(self, token: int, publication: Publication) -> None:
        try:
            await self._client.send(publication)
        except TocsinError as error:
            final = isinstance(error, WireError | Unencodable)
            self.tell(PublishFailed(token=token, reason=str(error), final=final))
        else:
            self.tell(Published(token=token))

    def _unsubscribe(self, topic: str) -> None:
        held = self._inboxes.pop(topic, None)
        if held is None:
            return
        inbox, task = held
        task.cancel()
        if inbox is not None:
            self._tasks.spawn(inbox.close())

    async def _subscribe(self, topic: str) -> None:
        """Keep a subscription; one that is refused is asked for again."""
        refusals = 0
        task = asyncio.current_task()
        assert task is not None
        while True:
            inbox = Deliveries(self._client, topic, self._hear)
            self._inboxes[topic] = inbox, task
            try:
                await inbox.open()
                refusals = 0
                self.tell(SubscriptionFailed(topic=topic, reason=""))
                await inbox.ended.wait()
                raise inbox.why or AssertionError("a subscription ended without a reason")
            except SubscriptionRefused as error:
                refusals += 1
                self.tell(SubscriptionFailed(topic=topic, reason=str(error)))
                self._log.warning("the network refused a subscription", topic=topic, reason=str(error))
                await asyncio.sleep(delay_us(refusals) / 1_000_000)

    async def _ask_wanted(self, topic: str) -> None:
        """Ask whether a topic is wanted; where that is refused it is, and the question is put again."""
        refusals = 0
        name = WANTED_PREFIX + topic
        task = asyncio.current_task()
        assert task is not None
        while True:
            inbox = self._client.wanted(topic)
            self._inboxes[name] = inbox, task
            try:
                async with inbox:
                    self.tell(SubscriptionFailed(topic=name, reason=""))
                    refusals = 0
                    async for wanted in inbox:
                        self.tell(WantedTold(topic=topic, wanted=wanted))
                return
            except SubscriptionRefused as error:
                refusals += 1
                self.tell(WantedTold(topic=topic, wanted=True))
                self.tell(SubscriptionFailed(topic=name, reason=f"whether it is wanted is not told: {error}"))
                await asyncio.sleep(delay_us(refusals) / 1_000_000)

    def _hear(self, packet: PublishPacket) -> None:
        if self.stopping:
            return  # it is left to the next one
        self._token += 1
        if packet.packet_id:
            self._packets[self._token] = packet
        self.tell(Heard(token=self._token, message=Message.of(packet), now_ns=time.time_ns()))

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
        mirror = self.mirror
        problems = [
            f"network: {self._network_problem}" if self._network_problem else "",
            *(f"{about}: {problem}" for about, problem in sorted(mirror.problems.items())),
        ]
        return {
            "active": mirror.active,
            "endpoints": mirror.endpoints,
            "mirrored": mirror.entities,
            "idle": mirror.idle,
            **{name: count for name, count in msgspec.structs.asdict(mirror.figures).items() if count},
            "problem": "; ".join(each for each in problems if each)[:1_000],
        }


def _will(plan: Plan, incarnation: str) -> Message:
    """What the network says for a bridge that does not come back."""
    said = PRESENCE.write(Presence(incarnation, False))
    return Message(plan.names.presence(plan.name), said, 1, retain=True)


async def serve(plan: Plan, process: Process) -> None:
    """Run a bridge until the process is asked to stop."""
    await DdsBridge(plan).run(process)
