"""One member's connection at a broker: as in ``durable``, and its part in groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tocsin.core.attendance import ClaimsForgotten, ClaimsSettled
from tocsin.core.machine import Effect
from tocsin.core.sharing_signals import Give, Join, Leave, Settle
from tocsin.core.stored_group import Claim
from tocsin.core.stored_session import FOREVER_S
from tocsin.sim.scenarios.durable.service import Service
from tocsin.sim.scenarios.durable.wire import Packet, Stream, Suback
from tocsin.wire.topics import SHARE_PREFIX

if TYPE_CHECKING:
    from tocsin.sim.scenarios.durable.broker import Broker
    from tocsin.sim.scenarios.groups.broker import GroupBroker


class GroupService(Service):
    """See the module's text."""

    def __init__(self, broker: Broker, client: str, stream: Stream, name: str) -> None:
        super().__init__(broker, client, stream, name)
        self.qos_of: dict[str, int] = {}  # what it asks for of each group
        self._awaited: dict[str, None] = {}  # groups that it joins before it is welcomed
        self._claims: list[tuple[str, Claim]] = []
        self._revision = 0
        self._present = False
        self._acknowledging: dict[str, None] = {}  # groups whose SUBACK waits

    @property
    def _at(self) -> GroupBroker:
        return cast("GroupBroker", self._broker)

    @property
    def _session(self) -> tuple[str, int, int]:
        """Its id, its epoch, and how long it lasts."""
        stored = self._taking
        return (self.name, 1, 0) if stored is None else (stored.uid, stored.epoch, FOREVER_S)

    # ── coming ──────────────────────────────────────────────────────────────────────────────────────────────

    def take(self) -> None:
        if self.lasting:
            super().take()
        else:
            self._begin()

    def taken(self, revision: int, present: bool) -> None:
        assert self._taking is not None
        self._revision, self._present = revision, present
        shared = {
            name: each.qos
            for name, each in self._taking.subscriptions.items()
            if name.startswith(SHARE_PREFIX)
        }
        self._awaited = dict.fromkeys(shared)
        for name, qos in shared.items():
            self._join(name, qos)
        if not shared:
            self._begin()

    def _join(self, name: str, qos: int) -> None:
        self.qos_of[name] = qos
        shell = self._at.group(name)
        shell.add(self)
        session, epoch, expiry_s = self._session
        shell.tell(Join(client=self.client, session=session, epoch=epoch, expiry_s=expiry_s))

    def joined(self, name: str, session: str, claims: tuple[Claim, ...]) -> None:
        if session != self._session[0] or not self.open:
            return
        if name in self._awaited:
            del self._awaited[name]
            self._claims += [(name, claim) for claim in claims]
            if not self._awaited:
                self._begin()
        elif name in self._acknowledging:
            del self._acknowledging[name]
            self._send(Suback(name))

    def _begin(self) -> None:
        self.welcome(self._revision, self._present, tuple(self._claims))
        self._at.room_made(list(self.qos_of))

    # ── staying ─────────────────────────────────────────────────────────────────────────────────────────────

    def on_packet(self, packet: Packet) -> None:
        full = not self.machine.room
        super().on_packet(packet)
        if full and self.machine.room:
            self._at.room_made(list(self.qos_of))

    def acknowledge(self, topic_filter: str, qos: int) -> None:
        self._acknowledging[topic_filter] = None
        self._join(topic_filter, qos)

    def give(self, name: str, give: Give) -> None:
        claims, position = self.machine.claims, give.matched.position
        fresh = give.qos and not give.repeat
        if fresh and (claims is None or not claims.claimed(give.packet_id, name, position, give.qos)):
            return  # it is another connection by now, and will be told so
        self._deliver(give.matched.publication, give.packet_id, give.qos, give.repeat)

    def forget(self, packet_ids: tuple[int, ...]) -> None:
        if self.machine.state != "new":
            self.tell(ClaimsForgotten(packet_ids=packet_ids))

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, ClaimsSettled):
            for name, position, _ in effect.claims:
                shell = self._at.known_group(name)
                if shell is not None:
                    shell.tell(Settle(client=self.client, position=position))
            return
        super()._carry_out(effect)

    # ── going ───────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        was_open = self.open
        super().close()
        if was_open:
            session, _, expiry_s = self._session
            for name in self.qos_of:
                shell = self._at.known_group(name)
                if shell is not None:
                    shell.remove(self)
                    shell.tell(Leave(client=self.client, session=session, expiry_s=expiry_s))
