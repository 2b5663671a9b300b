"""What passes the boundary of the brokers' shells, as invariants see it: who was told what, and who sends all the same.

It changes nothing. A broker's process tells it what it is about to do; whoever wants to judge that hangs on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from tocsin.model.message import Address
from tocsin.model.publication import Publication
from tocsin.sim.scenarios.durable.wire import Packet
from tocsin.sim.world import World

if TYPE_CHECKING:
    from tocsin.sim.scenarios.survival.broker import SurvivalBroker
    from tocsin.sim.scenarios.survival.service import SurvivalService


STANDS_IN: Final = "stands in for another"
PLACE_TAKEN: Final = "takes a place"


class Promise(NamedTuple):
    """A SUBACK or UNSUBACK that waits for the backups."""

    broker: SurvivalBroker
    client: str
    name: str
    version: int  # of the client's subscription: it changes with every change …
    since_us: int  # … and this is when it did: from then on the backups were told

    @property
    def wanted(self) -> bool:
        """Whether the broker's own state has the subscription."""
        return self.name in self.broker.replicating.clientele.subscriptions(self.client)


class Ledger:
    """See the module's text."""

    def __init__(self, world: World, names: tuple[str, ...] = ()) -> None:
        self.world = world
        self.names = names  # that brokers may have
        self.on_send: list[Callable[[SurvivalBroker, SurvivalService, Packet], None]] = []
        self.on_acknowledged: list[Callable[[Promise, bool], None]] = []
        self.on_stands_in: list[Callable[[SurvivalBroker, str, int], None]] = []
        self.on_will: list[Callable[[SurvivalBroker, Publication], None]] = []
        self.on_left: list[Callable[[SurvivalBroker, str, int], None]] = []
        self.ended_us: dict[str, int] = {}  # broker → when a process of that name ended last
        self.newest: dict[Address, SurvivalBroker] = {}  # node → the process that runs there, or did last
        self._names: dict[Address, str] = {}  # node → the broker that runs there, or did last
        self._changed: dict[tuple[str, str], tuple[int, int]] = {}  # client, name → version, when
        self._changed_at: dict[tuple[Address, str, str], tuple[int, int]] = {}  # the same of each node
        world.observers.on_life(self._life)

    def _life(self, node: Address, happening: str) -> None:
        if happening in ("crashed", "stopped") and node in self._names:
            self.ended_us[self._names[node]] = self.world.now_us

    def begins(self, broker: SurvivalBroker) -> None:
        self._names[broker.node], self.newest[broker.node] = broker.address, broker

    def processes(self, name: str) -> list[SurvivalBroker]:
        """Those that run under a broker's name."""
        return [each for each in self.brokers() if each.address == name]

    def brokers(self) -> list[SurvivalBroker]:
        """All that run."""
        return [each for node, each in self.newest.items() if self.world.machine(node) is each]

    # ── what brokers tell ───────────────────────────────────────────────────────────────────────────────────

    def sends(self, broker: SurvivalBroker, service: SurvivalService, packet: Packet) -> None:
        for hook in self.on_send:
            hook(broker, service, packet)

    def changes(self, broker: SurvivalBroker, service: SurvivalService, name: str) -> None:
        """A client has a subscription that it had not, or no longer."""
        changed = (self.version(service.client, name) + 1, self.world.now_us)
        self._changed[service.client, name] = self._changed_at[broker.node, service.client, name] = changed

    def version(self, client: str, name: str) -> int:
        return self._changed.get((client, name), (0, 0))[0]

    def awaits(self, broker: SurvivalBroker, service: SurvivalService, name: str) -> Promise:
        """Of what changed here last: a broker that was frozen meanwhile may answer when it is long another way."""
        client = service.client
        changed = self._changed_at.get((broker.node, client, name)) or self._changed[client, name]
        return Promise(broker, client, name, *changed)

    def acknowledges(self, promise: Promise, synced: bool) -> None:
        for hook in self.on_acknowledged:
            hook(promise, synced)

    def stands_in(self, broker: SurvivalBroker, place: str, epoch: int) -> None:
        self.world.reach(STANDS_IN, broker.node)
        for hook in self.on_stands_in:
            hook(broker, place, epoch)

    def publishes_will(self, broker: SurvivalBroker, will: Publication) -> None:
        for hook in self.on_will:
            hook(broker, will)

    def left(self, broker: SurvivalBroker, client: str, connection: int) -> None:
        """A client has disconnected in order, and every backup that its broker has knows."""
        for hook in self.on_left:
            hook(broker, client, connection)

    def takes_place(self, broker: SurvivalBroker) -> None:
        self.world.reach(PLACE_TAKEN, broker.node)
