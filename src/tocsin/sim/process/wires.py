"""The network between simulated processes: connections that keep order or break, and the bus of the store.

**Connections** are TCP's: bytes arrive in order, or the connection ends. While the way is cut nothing arrives; it is
tried again, and given up after GIVE_UP_US, at both ends. A node that crashes or stops resets its connections as its
kernel would, if the way is open; a paused one keeps them. A way may be **narrow**: then so many bytes a second leave
over it, one after the other, and the writer is told when they have.

**The bus** is that of the store: a node that is cut off from the store neither sends nor hears anything. Order is kept
between each two processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from tocsin.core.machine import Event, Received
from tocsin.model.network import Address
from tocsin.model.versions import UNREADABLE
from tocsin.sim.chance import MILLION
from tocsin.sim.network import STORE
from tocsin.sim.node import Node, Status
from tocsin.sim.process.signals import (
    Accepted,
    Answer,
    Answered,
    Arrived,
    Closed,
    Deselect,
    Dial,
    HangUp,
    Hasten,
    Left,
    Listen,
    Look,
    Narrowed,
    Opened,
    Publish,
    Reset,
    Said,
    Select,
    StopListening,
    Subscribe,
    Transmit,
    Unsubscribe,
)
from tocsin.sim.world import World
from tocsin.store import rules
from tocsin.wire.internal.control import decode_envelope

AGAIN_US: Final = 200_000  # before what a cut held up is sent again
SEGMENT_BYTES: Final = 1_448
GIVE_UP_US: Final = 20 * MILLION  # for a connection over which nothing arrives


class _End:
    """One end of a connection, and what is on its way there."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.starts = node.starts
        self.under_way: deque[tuple[int, Event]] = deque()  # when it is due, and what
        self.since_us: int | None = None  # since when nothing arrives
        self.last_us = 0  # what is sent next arrives no sooner than this
        self.free_us = 0  # when the last byte has left that was sent to it over a narrow way


class _Connection:
    def __init__(self, name: str, caller: Node, listener: Node) -> None:
        self.name = name
        self.direction = (caller.address, listener.address)  # dialling node and dialled node
        self.caller, self.listener = _End(caller), _End(listener)
        self.ends = {caller.address: self.caller, listener.address: self.listener}
        self.open = True
        self.stranded = False  # an end is reached elsewhere by now

    def other(self, address: Address) -> _End:
        return self.listener if self.caller.node.address == address else self.caller


class Wires:
    """All connections and the bus of one world."""

    def __init__(self, world: World, *, network: str, port_of: Callable[[str, int], Address | None]) -> None:
        self._world = world
        self._prefix = f"{network}.to."
        self._node_of = port_of  # which node has a port of a host
        self._proofs: dict[Address, str] = {}
        self._listening: dict[tuple[Address, int], None] = {}
        self._connections: dict[str, _Connection] = {}
        self._patterns: dict[Address, dict[str, None]] = {}  # who hears what on the bus
        self._hearers: dict[str, tuple[Address, ...]] = {}  # the same by subject, as far as it was asked
        self._last_us: dict[tuple[Address, Address], int] = {}
        self._barred: dict[tuple[Address, Address], None] = {}  # the pairs that cannot dial
        self._rates: dict[tuple[Address, Address], int] = {}  # narrow ways: bytes a second of a connection
        own = world.own
        own(Listen, lambda node, effect: self._listening.update({(node, effect.port): None}))
        own(StopListening, lambda node, effect: self._unlisten(node, effect.port))
        own(Dial, self._dial)
        own(Transmit, self._send)
        own(HangUp, self._hang_up)
        own(Reset, self._reset)
        own(Subscribe, self._subscribe)
        own(Unsubscribe, self._unsubscribe)
        own(Publish, self._publish)
        own(Answer, self._answer)
        own(Select, lambda node, effect: world.store.select(world.node(node), effect))
        own(Hasten, lambda node, effect: world.store.tails.hasten(world.node(node), effect.number))
        own(Deselect, lambda node, effect: world.store.tails.deselect(world.node(node), effect.number))
        own(Look, lambda node, effect: world.store.ask(world.node(node), effect))
        world.observers.on_happening(self._on_happening)

    def prove(self, node: Address, proof: str) -> None:
        """The identity that a node proves when it is dialled."""
        self._proofs[node] = proof

    def bar(self, caller: Address, listener: Address) -> None:
        """Let nothing pass over connections that the one has dialled, or will dial, to the other."""
        self._barred[caller, listener] = None

    def strand(self, node: Address) -> None:
        """Let nothing pass any more over the connections that a node has now: its address is gone."""
        for connection in self._connections.values():
            connection.stranded = connection.stranded or node in connection.ends

    def unbar(self, caller: Address, listener: Address) -> None:
        self._barred.pop((caller, listener), None)

    def narrow(self, sender: Address, receiver: Address, rate: int) -> None:
        """Let so many bytes a second leave over each connection from one node to another; 0: as many as there are,
        behind those that were written before."""
        self._rates[sender, receiver] = rate
        for connection in self._connections.values():
            if sender in connection.ends and connection.other(sender).node.address == receiver:
                at_us = self._world.now_us if rate else connection.other(sender).free_us
                at_us = max(at_us, self._world.now_us) + 1
                self._world.schedule.at(at_us, self._tell_narrow, connection, sender)

    def _tell_narrow(self, connection: _Connection, sender: Address) -> None:
        end, narrow = (
            connection.ends[sender],
            bool(self._rates[sender, connection.other(sender).node.address]),
        )
        self._tell_end(end.node, (end.starts, Narrowed(connection=connection.name, narrow=narrow)))

    # ── connections ─────────────────────────────────────────────────────────────────────────────────────────

    def _unlisten(self, node: Address, port: int) -> None:
        self._listening.pop((node, port), None)

    def _dial(self, caller: Address, effect: Dial) -> None:
        target = self._node_of(effect.host, effect.port)
        if target is not None and not self._world.members(target):
            target = None  # no node has that address
        delay_us = self._delay_us(caller, effect.host if target is None else target)
        self._world.schedule.at(
            self._world.now_us + delay_us, self._knock, (self._world.node(caller), target), effect
        )

    def _knock(self, who: tuple[Node, Address | None], effect: Dial) -> None:
        caller, target = who
        world = self._world
        barred = (caller.address, target) in self._barred
        if target is None or barred or self._cut(caller.address, target):
            # Nothing answers: as a kernel, give up later.
            later = world.now_us + 3 * MILLION
            failed = Closed(connection=effect.connection, reason="no route")
            world.schedule.at(later, self._tell_end, caller, (caller.starts, failed))
            return
        node = world.node(target)
        if (target, effect.port) not in self._listening or node.machine is None:
            refused = Closed(connection=effect.connection, reason="refused")
            at_us = world.now_us + self._delay_us(target, caller.address)
            world.schedule.at(at_us, self._tell_end, caller, (caller.starts, refused))
            return
        connection = _Connection(effect.connection, caller, node)
        self._connections[effect.connection] = connection
        accepted = Accepted(
            connection=effect.connection, port=effect.port, peer=caller.address, proof=effect.proof
        )
        self._carry(connection, target, accepted)
        self._carry(
            connection,
            caller.address,
            Opened(connection=effect.connection, proof=self._proofs.get(target, "") if effect.proof else ""),
        )
        for one, other in ((caller.address, target), (target, caller.address)):
            if self._rates.get((one, other)):
                self._carry(connection, one, Narrowed(connection=effect.connection, narrow=True))

    def _send(self, sender: Address, effect: Transmit) -> None:
        name, data = effect.connection, effect.data
        connection = self._connections.get(name)
        if connection is not None:
            arrived = Arrived(connection=name, data=data)
            other = connection.other(sender)
            way = (sender, other.node.address)
            rate = self._rates.get(way)
            slow_us = self._let_leave(connection, sender, len(data), rate) if rate else 0
            self._carry_to(connection, other, connection.ends[sender], arrived, slow_us)

    def _let_leave(self, connection: _Connection, sender: Address, size: int, rate: int) -> int:
        """How long bytes take to leave over a narrow way, behind those before them; their sender hears of it."""
        end, node, now_us = connection.other(sender), self._world.node(sender), self._world.now_us
        at_us = max(now_us, end.free_us)
        for begin in range(0, size, SEGMENT_BYTES):
            part = min(SEGMENT_BYTES, size - begin)
            at_us += part * MILLION // rate
            left = Left(connection=connection.name, size=part)
            self._world.schedule.at(at_us, self._world.answer, node, (node.starts, left))
        end.free_us = at_us
        return at_us - now_us

    def _hang_up(self, sender: Address, effect: HangUp) -> None:
        name = effect.connection
        connection = self._connections.get(name)
        if connection is not None and connection.open:
            connection.open = False
            other = connection.other(sender)
            connection.ends[sender].under_way.clear()
            self._carry(connection, other.node.address, Closed(connection=name, reason="closed by the peer"))

    def _reset(self, sender: Address, effect: Reset) -> None:
        connection = self._connections.get(effect.connection)
        if connection is not None and connection.open:
            other = connection.other(sender)
            if self._stuck(connection, sender, other.node.address):
                other.under_way.clear()  # the sender's kernel has it, and lets it go
        self._hang_up(sender, HangUp(connection=effect.connection))

    def _carry(self, connection: _Connection, to: Address, event: Event) -> None:
        self._carry_to(connection, connection.ends[to], connection.other(to), event)

    def _carry_to(
        self, connection: _Connection, end: _End, sender: _End, event: Event, slow_us: int = 0
    ) -> None:
        schedule = self._world.schedule
        at_us = (
            schedule.now_us + slow_us + self._world.network.delay_us(sender.node.address, end.node.address)
        )
        if at_us < end.last_us:
            at_us = end.last_us
        end.last_us = at_us
        end.under_way.append((at_us, event))
        if len(end.under_way) == 1:
            schedule.at(at_us, self._arrive, connection, end)

    def _arrive(self, connection: _Connection, end: _End) -> None:
        if not end.under_way:
            return
        world, node = self._world, end.node
        sender = connection.other(node.address)
        if self._stuck(connection, sender.node.address, node.address):
            if end.since_us is None:
                end.since_us = world.now_us
            if world.now_us - end.since_us > GIVE_UP_US:
                self._break(connection)
            else:
                world.schedule.at(world.now_us + AGAIN_US, self._arrive, connection, end)
            return
        end.since_us = None
        if node.starts != end.starts or node.machine is None:
            self._break(connection)  # the kernel of its machine knows of no such connection
            return
        if node.status is Status.ASLEEP:
            world.schedule.at(world.now_us + AGAIN_US, self._arrive, connection, end)
            return
        _, event = end.under_way.popleft()
        world.answer(node, (end.starts, event))
        if end.under_way:
            at_us = max(end.under_way[0][0], world.now_us)
            world.schedule.at(at_us, self._arrive, connection, end)
        elif not connection.open:
            self._connections.pop(connection.name, None)

    def _break(self, connection: _Connection) -> None:
        """A connection that neither end can use: both learn it, as soon as they can."""
        if self._connections.pop(connection.name, None) is None:
            return
        connection.open = False
        for end in connection.ends.values():
            end.under_way.clear()
            if end.node.starts == end.starts:
                lost = Closed(connection=connection.name, reason="broken")
                self._world.schedule.at(self._world.now_us + 1, self._tell_end, end.node, (end.starts, lost))

    def _tell_end(self, node: Node, starts_and_event: tuple[int, Event]) -> None:
        """Tell a node that a connection is over; one that sleeps learns it from its own kernel on waking."""
        world = self._world
        if node.status is Status.ASLEEP and node.starts == starts_and_event[0]:
            world.schedule.at(world.now_us + AGAIN_US, self._tell_end, node, starts_and_event)
        else:
            world.answer(node, starts_and_event)

    def _on_happening(self, address: Address, happening: str) -> None:
        if happening in ("crashed", "stopped"):
            self._patterns.pop(address, None)
            self._hearers.clear()
            for key in [each for each in self._listening if each[0] == address]:
                del self._listening[key]
            for connection in [each for each in self._connections.values() if address in each.ends]:
                other = connection.other(address)
                connection.ends[address].under_way.clear()
                self._carry(
                    connection, other.node.address, Closed(connection=connection.name, reason="reset")
                )
        elif happening == "disconnected":
            for connection in [each for each in self._connections.values() if address in each.ends]:
                self._break(connection)

    # ── the bus ─────────────────────────────────────────────────────────────────────────────────────────────

    def _subscribe(self, node: Address, effect: Subscribe) -> None:
        self._patterns.setdefault(node, {})[effect.pattern] = None
        self._hearers.clear()

    def _unsubscribe(self, node: Address, effect: Unsubscribe) -> None:
        self._patterns.get(node, {}).pop(effect.pattern, None)
        self._hearers.clear()

    def _heard_by(self, subject: str) -> tuple[Address, ...]:
        """The nodes that hear a subject."""
        found = self._hearers.get(subject)
        if found is None:
            found = self._hearers[subject] = tuple(
                node
                for node, patterns in self._patterns.items()
                if any(rules.matches(pattern, subject) for pattern in patterns)
            )
        return found

    def _publish(self, sender: Address, effect: Publish) -> None:
        world = self._world
        if self._cut(sender, STORE):
            return
        node = world.node(sender)
        hearers = self._heard_by(effect.subject)
        if hearers:
            said = Said(
                subject=effect.subject,
                payload=effect.payload,
                asker=sender if effect.question else "",
                starts=node.starts,
                question=effect.question,
            )
            for receiver in hearers:
                self._tell(sender, receiver, said)
        heard = self._tell_machine(node, effect) or bool(hearers)
        if effect.question and not heard:
            nobody = Answered(question=effect.question, payload=None)
            at_us = world.now_us + world.network.delay_us(sender, STORE)
            world.schedule.at(at_us, world.answer, node, (node.starts, nobody))

    def _tell_machine(self, sender: Node, effect: Publish) -> bool:
        """Send a publication as a message, if its address is a node that is itself a machine."""
        if not effect.subject.startswith(self._prefix):
            return False
        address = effect.subject.removeprefix(self._prefix).replace(".", "/")
        members = self._world.members(address)
        if not members:
            return False
        try:
            envelope = decode_envelope(effect.payload)
        except UNREADABLE:
            return False
        event = Received(
            sender=envelope.sender or sender.address, message=envelope.message, cause=envelope.cause
        )
        for member in members:
            self._tell(sender.address, member, event)
        return True

    def _answer(self, sender: Address, effect: Answer) -> None:
        if not self._cut(sender, STORE):
            answered = Answered(question=effect.question, payload=effect.payload)
            self._tell(sender, effect.to, answered, starts=effect.starts)

    def _tell(self, sender: Address, receiver: Address, event: Event, *, starts: int | None = None) -> None:
        network, node = self._world.network, self._world.node(receiver)
        pair = (sender, receiver)
        delay_us = network.delay_us(sender, STORE) + network.delay_us(STORE, receiver)
        at_us = self._last_us[pair] = max(self._world.now_us + delay_us, self._last_us.get(pair, 0))
        self._world.schedule.at(
            at_us, self._hand_over, node, (node.starts if starts is None else starts, event)
        )

    def _hand_over(self, node: Node, starts_and_event: tuple[int, Event]) -> None:
        if not self._cut(STORE, node.address) and node.status is not Status.ASLEEP:
            self._world.answer(node, starts_and_event)

    # ── the way ─────────────────────────────────────────────────────────────────────────────────────────────

    def _stuck(self, connection: _Connection, sender: Address, receiver: Address) -> bool:
        """Whether nothing passes over a connection this way."""
        return connection.stranded or connection.direction in self._barred or self._cut(sender, receiver)

    def _cut(self, sender: Address, receiver: Address) -> bool:
        network = self._world.network
        return not network.calm and network.blocked(sender, receiver)

    def _delay_us(self, sender: Address, receiver: Address) -> int:
        return self._world.network.delay_us(sender, receiver)
