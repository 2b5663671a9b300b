"""The promises of the delivery of channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from tocsin.core.delivery.stored_session import StoredSession, decode_session, session_key
from tocsin.core.machine import PutKey, Say
from tocsin.core.shared.stored_group import GROUP_KEYS, decode_group
from tocsin.model.network import Address
from tocsin.model.results import decode_notice, decode_subscription, result_position
from tocsin.ports import Change, Entry
from tocsin.sim.process.broker import broker_at
from tocsin.sim.process.stage import CHANNELS, GROUPS, SESSIONS
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.channels.clients import ChannelClient
from tocsin.sim.scenarios.channels.dataset import FILES, TICK, Row, meant_by, number_of, part_of
from tocsin.sim.scenarios.durable.promises import client_at
from tocsin.sim.scenarios.durable.sessions import Doors, OnlyTheUsurpedStop, SessionsLast
from tocsin.sim.world import World
from tocsin.wire.mqtt.topics import CHANNEL_PREFIX

Subscription = tuple[Address, str]  # client and name


def session_of(world: World, client: Address) -> StoredSession | None:
    """The stored session of a client."""
    cell = world.store.tables[SESSIONS.name].get(session_key(client), world.store.clock_us)
    return None if cell is None else decode_session(cell.value)


class Arrive(Invariant):
    """Results of what a client is subscribed to: all of them, in order; and of nothing else.

    The order is that of critical results, and that of the others, from SUBACK on: a broker that is behind may create
    a subscription again that was never acknowledged. A client that comes back has all critical results that its
    broker knew of when it came before it gets any other.

    What a client unsubscribes from at a broker that is cut off is gone once the store has it. Until then it may come
    back (decision 032, *not done*): if that broker knows an older epoch of the session than the store has, if it ends,
    or if another broker serves the client next.
    """

    name = "subscribers get every result, in order, and none that they do not want"

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, Row]] = {}  # tick → ordinal → result
        self._places: dict[int, int] = {}  # tick → the place at which its notice begins
        # Client → its connection, and how far its broker was with the results when it came.
        self._began: dict[Address, tuple[object, int]] = {}
        self._at: dict[Address, Address] = {}  # client → the broker that accepted it last
        # UNSUBACK came from this broker, which was cut off and had the session; and the store has no word of it yet.
        self._for_now: dict[Subscription, Address] = {}
        self._ticks: list[int] = []  # with a notice, in the order of the notices
        self._due: dict[Subscription, int] = {}  # those to come, from this one of the notices on
        self._unwanted: set[Subscription] = set()  # UNSUBACK came, and neither SUBACK nor UNSUBSCRIBE since
        self._seen: dict[Subscription, dict[int, None]] = {}
        self._newest: dict[
            tuple[Subscription, bool], int
        ] = {}  # since SUBACK; of critical ones, and of others
        self._on_connection: dict[Address, tuple[object, set[tuple[str, int]]]] = {}

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_entry(FILES.name, self._on_file)
        world.observers.on_entry(CHANNELS.notices.name, self._on_notice)
        world.observers.on_say("subscribed", self._on_subscribed)
        world.observers.on_say("unsubscribing", self._on_unsubscribing)
        world.observers.on_say("unsubscribed", self._on_unsubscribed)
        world.observers.on_say("took", self._on_took)
        world.observers.on_say("client accepted", self._on_coming)
        world.observers.on_say("session lost", self._on_lost)
        world.observers.on_write(SESSIONS.name, self._on_written)
        world.observers.on_happening(self._on_happening)

    def _on_written(self, node: Address, put: PutKey, revision: int) -> None:
        session = decode_session(put.value)
        for client, name in [each for each in self._for_now if each[0] == session.client]:
            if name not in session.subscriptions:
                del self._for_now[client, name]

    def _on_happening(self, node: Address, happening: str) -> None:
        if happening in ("crashed", "stopped"):
            self._take_back([key for key, at in self._for_now.items() if at == node])

    def _take_back(self, subscriptions: list[Subscription]) -> None:
        """The store may never hear that these were given up."""
        for subscription in subscriptions:
            del self._for_now[subscription]
            self._unwanted.discard(subscription)

    def _on_lost(self, client: Address, say: Say) -> None:
        """Nothing is due to a client whose session is over, until it subscribes again."""
        for subscription in [each for each in self._due if each[0] == client]:
            del self._due[subscription]

    def _on_coming(self, node: Address, say: Say) -> None:
        client, broker = str(say.facts["subscriber"]), broker_at(self._world, node)
        if broker is not None:
            tail = broker.parts.channels.results.tail
            self._began[client] = (self._client(client).connection, tail)
            self._at[client] = node
            self._take_back([key for key, at in self._for_now.items() if key[0] == client and at != node])

    def _on_file(self, entry: Entry) -> None:
        part = part_of(entry)
        for row in part.rows:
            self._rows.setdefault(part.tick, {})[row.ordinal] = row

    def _on_notice(self, entry: Entry) -> None:
        tick = decode_notice(entry.payload).tick
        if tick in self._ticks:
            self.broken(f"there are two notices of tick {tick}")
        self._ticks.append(tick)
        self._places[tick] = result_position(entry.position, 0)

    def _on_subscribed(self, client: Address, say: Say) -> None:
        subscription = (client, str(say.facts["name"]))
        self._due[subscription] = len(self._ticks)
        for critical in (False, True):
            self._newest.pop((subscription, critical), None)
        self._unwanted.discard(subscription)

    def _on_unsubscribing(self, client: Address, say: Say) -> None:
        """It has subscribed again since its last UNSUBACK, though SUBACK may not have come: until the next one results
        may come."""
        subscription = (client, str(say.facts["name"]))
        self._due.pop(subscription, None)
        self._unwanted.discard(subscription)

    def _on_unsubscribed(self, client: Address, say: Say) -> None:
        subscription, at = (client, str(say.facts["name"])), self._at[client]
        self._unwanted.add(subscription)
        self._for_now.pop(subscription, None)
        broker, stored = broker_at(self._world, at), session_of(self._world, client)
        if broker is None or not broker.parts.provisional.cut_off or stored is None:
            return
        self._for_now[subscription] = at
        here = broker.parts.clients.present.get(client)
        known = None if here is None else (here.delivery.session, here.delivery.session_epoch)
        if known != (stored.uid, stored.epoch):
            self._take_back([subscription])

    def _on_took(self, client: Address, say: Say) -> None:
        name, number = str(say.facts["name"]), cast(int, say.facts["number"])
        subscription, (tick, ordinal) = (client, name), divmod(number, TICK)
        machine = self._client(client)
        if subscription in self._unwanted and name not in machine.wanted:
            self.broken(f"{client} got result {number} of {name}, and has unsubscribed")
        row = self._rows.get(tick, {}).get(ordinal)
        if row is None or row.k != meant_by(name):
            self.broken(f"{client} got result {number} as one of {name}, and it is none")
        connection, got = self._on_connection.get(client, (None, set()))
        if connection != say.facts["connection"]:
            got = set()
            self._on_connection[client] = (say.facts["connection"], got)
        if (name, number) in got:
            self.broken(f"{client} got result {number} of {name} again on one connection")
        got.add((name, number))
        seen = self._seen.setdefault(subscription, {})
        newest = self._newest.get((subscription, row.critical), -1)
        if number not in seen and number < newest:
            self.broken(f"{client} got result {number} of {name} after {newest}")
        seen[number] = None
        if subscription in self._due:
            self._newest[subscription, row.critical] = max(newest, number)
        if not row.critical:
            self._check_overtaken(client, say.facts["connection"], number)

    def _check_overtaken(self, client: Address, connection: object, number: int) -> None:
        """A result that is not critical came: were there critical ones, they were first."""
        began, tail = self._began.get(client, (None, 0))
        if began != connection:
            return
        for (who, name), since in self._due.items():
            if who != client:
                continue
            seen = self._seen.get((client, name), {})
            for tick in self._ticks[since:]:
                for row in self._rows[tick].values():
                    before = self._places[tick] + row.ordinal <= tail and row.critical
                    if before and row.k == meant_by(name) and number_of(tick, row.ordinal) not in seen:
                        late = number_of(tick, row.ordinal)
                        self.broken(f"{client} got result {number}, and not yet {late}, which is critical")

    def _client(self, address: Address) -> ChannelClient:
        return cast(ChannelClient, client_at(self._world, address))

    def finish(self, world: World) -> None:
        for (client, name), since in self._due.items():
            seen = self._seen.get((client, name), {})
            for tick in self._ticks[since:]:
                for ordinal, row in self._rows[tick].items():
                    if row.k == meant_by(name) and number_of(tick, ordinal) not in seen:
                        self.broken(f"{client} never got result {number_of(tick, ordinal)} of {name}")
        if set(self._rows) != set(self._ticks):
            self.broken("some results have no notice")


class StayHeld(Invariant):
    """Some broker holds each subscription that a client was told it has, so that every tick makes results for it.

    A standby cell counts: while no broker holds k for its own clients, results go to the standbys. A session that has
    expired does not, which the store knows before the client does.
    """

    name = "what is subscribed to is held"

    def __init__(self) -> None:
        self._cells: dict[str, str] = {}  # key → k
        self._promised: dict[Subscription, None] = {}
        self._world: World

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_say("session lost", self._on_lost)
        world.observers.on_change(CHANNELS.subscriptions.name, self._on_change)
        world.observers.on_say("subscribed", self._on_subscribed)
        world.observers.on_say("unsubscribing", self._on_unsubscribing)

    def _on_change(self, change: Change) -> None:
        if change.kind == "put":
            self._cells[change.key] = decode_subscription(change.value).k
        elif change.kind == "delete":
            self._cells.pop(change.key, None)
            self._look()

    def _on_subscribed(self, client: Address, say: Say) -> None:
        self._promised[client, str(say.facts["name"])] = None
        self._look()

    def _on_unsubscribing(self, client: Address, say: Say) -> None:
        self._promised.pop((client, str(say.facts["name"])), None)

    def _on_lost(self, client: Address, say: Say) -> None:
        for subscription in [each for each in self._promised if each[0] == client]:
            del self._promised[subscription]

    def _look(self) -> None:
        held = set(self._cells.values())
        for client, name in self._promised:
            if meant_by(name) not in held and self._has_session(client, name):
                self.broken(f"{client} is subscribed to {name}, and nobody holds it")

    def _has_session(self, client: Address, name: str) -> bool:
        session = session_of(self._world, client)
        return session is not None and name in session.subscriptions


class Tidy(Invariant):
    """In the end each home holds what its sessions want, each holder what its group shares, and nobody anything else;
    and all is acknowledged.

    The broker that serves a client may not have heard yet that another broker's late write took the session: then it
    holds the subscriptions as well.
    """

    name = "in the end what is held is what is wanted, and everything is settled"

    def finish(self, world: World) -> None:
        wanted: set[tuple[str, str]] = set()
        for address in world.addresses:
            if not isinstance(client_at(world, address), ChannelClient):
                continue
            cell = world.store.tables[SESSIONS.name].get(session_key(address), world.store.clock_us)
            if cell is None:
                self.broken(f"{address} has no session")
            session = decode_session(cell.value)
            wanted |= {(meant_by(name), session.home) for name in _channels(session.subscriptions)}
            for each in (session.results, session.critical):
                if each is not None and each.unsettled:
                    self.broken(f"results for {address} are not settled: {each}")
        groups = world.store.tables[GROUPS.name]
        for key in groups.keys(GROUP_KEYS, world.now_us):
            cell = groups.get(key, world.now_us)
            source = None if cell is None else decode_group(cell.value).source
            if source is not None:
                wanted.add((source.bound.k, source.holder))
        table = world.store.tables[CHANNELS.subscriptions.name]
        cells = [table.get(key, world.now_us) for key in table.keys("", world.now_us)]
        held = [decode_subscription(cell.value) for cell in cells if cell is not None]
        there = {(each.k, each.broker) for each in held if not each.standby}
        if not wanted <= there <= wanted | self._served(world):
            self.broken(f"held: {sorted(there)}; wanted: {sorted(wanted)}")

    def _served(self, world: World) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        for address in world.addresses:
            broker = broker_at(world, address)
            if broker is not None:
                present = broker.parts.clients.present
                for connection in present.values():
                    names = _channels(connection.delivery.subscriptions)
                    found |= {(meant_by(name), address) for name in names}
        return found


def _channels(subscriptions: Iterable[str]) -> list[str]:
    return [name for name in subscriptions if name.startswith(CHANNEL_PREFIX)]


def promises() -> list[Invariant]:
    doors = Doors()
    return [Arrive(), StayHeld(), doors, SessionsLast(doors), OnlyTheUsurpedStop(doors), Tidy()]
