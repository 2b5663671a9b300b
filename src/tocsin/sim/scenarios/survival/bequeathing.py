"""The part of ``broker.wills`` and ``broker.standing_in``: wills that wait here, and those of brokers that are gone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from tocsin.core import standing_in as core
from tocsin.core.machine import Effect, Event, GetKey, Stored, StoreFailed
from tocsin.core.replication.gamma import Left
from tocsin.core.standing_in import AwaitWill, ClientCame, ReleaseCopy, StandIns
from tocsin.core.stored_session import decode_session, session_key
from tocsin.core.waiting_wills import Cancel, Told, Verdict, WaitingWills, came_since
from tocsin.model.message import broker_address
from tocsin.sim.chance import MILLION
from tocsin.sim.scenarios.durable.wire import SESSIONS
from tocsin.sim.scenarios.survival.part import Part
from tocsin.sim.scenarios.survival.wire import Inquest
from tocsin.wire.replication import Bequest, Mourned

if TYPE_CHECKING:
    from tocsin.sim.scenarios.survival.broker import SurvivalBroker

ANSWER_S: Final = 1  # for others to say that a will is settled
ASKS_MAX: Final = 5  # then who is silent is taken to be gone
GRACE_S: Final = 5  # for a client to notice that its broker is gone, before its will is published
WILLS: Final = "wills/"  # the topics on which they are published begin so


class Bequeathing:
    """See the module's text."""

    looks_fresh = True  # at the session of whose will it is; so that a variant can be tried

    def __init__(self, broker: SurvivalBroker, wills: type[WaitingWills]) -> None:
        self._broker = broker
        self.wills = wills(self._commit, self._later, broker.replicating.will_settled)
        self.machine = StandIns(broker.replicating, GRACE_S)
        self._part = Part(broker, "standing in", self.machine, self._on_effect)
        self._alarms = 0
        self._asked: dict[tuple[str, ...], list[Verdict]] = {}  # the names of wills of which others are asked

    def publish(self, will: Bequest) -> None:
        """Without delay: its client's connection has just ended."""
        self.wills.give_out(will.publication.topic.removeprefix(WILLS), will)

    def _commit(self, will: Bequest, done: Told) -> None:
        def told() -> None:
            self._broker.replicating.backup.note_void(will.record_id)
            done()

        self._broker.ledger.publishes_will(self._broker, will.publication)
        self._broker.commit(will.publication, self.record_id(will), told, self._broker.past)

    def record_id(self, will: Bequest) -> str:
        return will.record_id

    # ── brokers that are gone ───────────────────────────────────────────────────────────────────────────────

    def stand_in(self, broker: str, epoch: int) -> None:
        if not self.machine.knows(broker, epoch):
            taken = self._broker.replicating.take_over(broker)
            absent = tuple(each for each in taken if each.client not in self._broker.services)
            self._part.tell(
                core.StoodIn(broker=broker, epoch=epoch, standings=absent, cause=f"stand in for {broker}")
            )
            for other in self._broker.others:
                if other != broker:
                    self._broker.send(broker_address(other), Mourned(broker))

    def stand_down(self, broker: str) -> None:
        self._part.tell(core.StoodDown(broker=broker, cause=f"stand down for {broker}"))

    def restarted(self, broker: str, wills: tuple[Left, ...]) -> None:
        absent = tuple(each for each in wills if each.client not in self._broker.services)
        if absent:
            self._part.tell(core.Restarted(broker=broker, wills=absent, cause=f"restart of {broker}"))

    def came(self, client: str, broker: str) -> None:
        """A client is alive, at this broker or another: it came for its session, as all of this scenario do."""
        self.wills.came(client, back=True)
        self._part.tell(ClientCame(client=client, broker=broker, cause=client))

    def _on_effect(self, effect: Effect) -> None:
        match effect:
            case AwaitWill(broker=broker, client=client, bequest=bequest, delay_s=delay_s):
                lives = partial(self.machine.lives, broker, client)
                doubt = self._find_out
                self.wills.delay(client, bequest, delay_s, moving=True, unless=lives, doubt=doubt, of=broker)
            case ReleaseCopy(broker=broker):
                self._broker.replicating.release(broker)
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    def _find_out(self, client: str, will: Bequest, verdict: Verdict) -> None:
        def look(event: Stored | StoreFailed) -> None:
            if isinstance(event, StoreFailed):
                self._later(1, lambda: self._find_out(client, will, verdict))
                return
            if came_since(will, None if event.value is None else decode_session(event.value.value)):
                verdict(True)
            elif will.since:
                self._look_into_log(will, verdict)
            else:
                self._ask_others(will.names, verdict)

        asked = GetKey(request="will", table=SESSIONS.name, key=session_key(client), fresh=self.looks_fresh)
        self._broker.ask(asked, look)

    def _look_into_log(self, will: Bequest, verdict: Verdict) -> None:
        """Whether its own broker, or another, has put it there: what ``journal.has`` says."""

        def look(found: dict[str, int] | StoreFailed, end: int) -> None:
            if isinstance(found, StoreFailed):
                self._later(1, lambda: self._look_into_log(will, verdict))
            elif found:
                verdict(True)
            else:
                self._ask_others(will.names, verdict)

        self._broker.find({will.record_id}, will.since, look)

    def _ask_others(self, names: tuple[str, ...], verdict: Verdict) -> None:
        """Whether somebody knows that a will is settled; who is silent knows nothing."""
        if any(map(self._broker.replicating.backup.is_void, names)):
            verdict(True)
            return
        waiting = self._asked.setdefault(names, [])
        waiting.append(verdict)
        if len(waiting) == 1:
            self._ask(names, ASKS_MAX)

    def _ask(self, names: tuple[str, ...], times: int) -> None:
        if names not in self._asked:
            return  # somebody knew
        if not times:
            self._answered(names, False)
            return
        for other in self._broker.others:
            self._broker.send(broker_address(other), Inquest(names))
        self._later(ANSWER_S, lambda: self._ask(names, times - 1))

    def heard_settled(self, names: tuple[str, ...]) -> None:
        """Another broker knows that a will is settled."""
        self._answered(names, True)

    def _answered(self, names: tuple[str, ...], settled: bool) -> None:
        for verdict in self._asked.pop(names, ()):
            verdict(settled)

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def _later(self, delay_s: int, act: Callable[[], None]) -> Cancel:
        self._alarms += 1
        alarm = _Alarm(f"will {self._alarms}", act)
        self._broker.set_timer(alarm, "due", delay_s * MILLION)
        return lambda: self._broker.cancel_timer(alarm, "due")


class _Alarm:
    """A timer of its own."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name = name
        self._act = act

    def tell(self, event: Event) -> None:
        self._act()
