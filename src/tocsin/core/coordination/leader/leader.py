"""A leadership: takes commands, appends them with what follows from them, and watches the brokers.

Commands gather while an append is under way; the next one takes them all (**group commit**), so that durability costs
latency once a batch. A batch of which very many brokers have to be told is followed by a short pause, in which more
commands gather: when a tenth of a thousand brokers fails, each change is news for all others, and telling it for itself
would cost more than all the rest. Appends are not pipelined: a second one would have to predict the position that it
expects, and somebody else's records could meet that prediction just where ours were refused.

Invariants:

- one append is under way at most, and it says which position it expects; if that is not the last, somebody else
leads;
- the state is ahead of the log by that append and no more. So a coordinator that stops leading has to discard the
  state;
- while the log has much that no snapshot covers brokers' commands are not taken: brokers send them again, and wait for
  a snapshot. The leader's own commands (losses, takeovers) go on, in the room that is left;
- nothing that follows from a command leaves before the command is in the log: notices are in the same append, and
  ``KnownUpTo`` waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tocsin.core.coordination.leader.backup_planning import LOOK_US, PlanClock, PlanMade, WantPlan
from tocsin.core.coordination.leader.balancing import DrainOrders
from tocsin.core.coordination.leader.broker_watch import Attention, Presence
from tocsin.core.coordination.leader.drafting import ClearanceWaits, Cleared, Draft, Drafter
from tocsin.core.coordination.leader.growth import Growth
from tocsin.core.coordination.leader.pinning import Pins
from tocsin.core.coordination.leader.placing import Placing
from tocsin.core.coordination.leader.promotions import Promotions, StandbyTold, links_of
from tocsin.core.coordination.leader.recruiting import RESTART_US, Network, Recruiting
from tocsin.core.coordination.leader.rerouting import Rerouting
from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.coordination.names import Options, StoreNames
from tocsin.core.coordination.state.backups import NONE as NO_BACKUPS
from tocsin.core.coordination.state.backups import able
from tocsin.core.coordination.state.state import State
from tocsin.core.machine import Append, Effect, Say, Send, SetTimer
from tocsin.errors import StoreFull, TocsinError
from tocsin.model.network import BrokerInfo, Message, broker_address
from tocsin.model.versions import ANY, Levels, fits
from tocsin.ports import Record
from tocsin.wire.internal.commands import (
    Joined,
    Left,
    Logged,
    Lost,
    Placed,
    Planned,
    Promoted,
    Raised,
    Refreshed,
    Rerouted,
    Said,
    Shunned,
    encode_command,
)
from tocsin.wire.internal.control import (
    Beat,
    Expected,
    KnownUpTo,
    Links,
    Load,
    Refresh,
    Seen,
    Submit,
    Unknown,
    Unspoken,
)

COMMANDS_MAX_BYTES: Final = 256 << 10  # of one batch, before the run that passes it
PENDING_MAX: Final = 10_000  # commands of one broker that wait here; it sends the rest again
TICK_US: Final = 10_000_000  # the network's time is written down so often while anything depends on it
ANSWER_US: Final = 6_000_000  # longer than a store waits; an answer that is not there by then never comes
RETRY_FIRST_US: Final = 50_000
RETRY_MAX_US: Final = 2_000_000
PACE_LEAST: Final = 100  # notices of one batch, from which on there is a pause after it …
PACE_US_EACH: Final = 100  # … of so much for each: a tenth of a second for a thousand brokers
SLOW_US: Final = 500_000  # some hundred times what an append takes
NAME_MAX: Final = 63


class Leader:
    """One leadership, from ``Elected`` to its end: takes commands and appends them."""

    attending: type[Attention] = Attention  # so that a variant can be tried
    promoting: type[Promotions] = Promotions
    recruiting: type[Recruiting] = Recruiting

    def __init__(
        self,
        state: State,
        places: StoreNames,
        options: Options,
        request: Callable[[str], str],
        record_id: Callable[[], str],
        position: int,
        now_us: int,
        uncovered: Callable[[], int] = lambda: 0,
        orders: DrainOrders | None = None,
        pins: Pins | None = None,
    ) -> None:
        """The state is that of the log, whose last entry is ``Elected`` at ``position``. ``uncovered``: the bytes of
        the log that no snapshot covers; ``orders``: the brokers to empty; ``pins``: who has to carry which slots."""
        self.state = state
        self.previous = position  # of the last batch
        self.asked = ""  # the append whose answer is awaited
        self._log = places.commands.name
        self._uncovered = uncovered
        self._wait_bytes = options.wait_bytes
        self._request = request
        self._last = position  # of the log's last entry
        self._drafter = Drafter(places, state.epoch, record_id)
        self._began_us, self._clock_us = now_us, state.clock_us
        self._waiting: deque[Logged] = deque()
        # Broker of which something waits → incarnation, number after the last that was taken.
        self._taken: dict[str, tuple[int, int]] = {}
        self._draft: Draft | None = None
        self._appends: deque[tuple[Record, ...]] = deque()  # of the draft, the one under way first
        self._failures = 0
        self._clearance = ClearanceWaits()
        self.attention = self.attending(state, options, now_us, orders)
        self._appended_us = now_us  # when the append that is under way was asked for first
        self._plans = PlanClock(now_us)
        self._promotions = self.promoting(options.promote_after_us)
        self.recruits = self.recruiting(options.recruit)
        self.rerouting = Rerouting(state)
        self.placing = Placing(
            state,
            self._clearance.has_seen,
            lambda: self.attention.balance.ordered | self.growth.leaving,
            pins or Pins(),
            options.placing,
            self.rerouting.distances,
        )
        self.growth = Growth(
            state, self.placing.loads_of, lambda: self.attention.balance.ordered, options.growth
        )
        self._above_us: int | None = None  # since when everybody speaks a higher level than the network's
        self._raise_after_us = options.raise_after_us
        self._paced_us = 0  # nothing is appended before: the last batch was news for very many
        self._tick = False  # time has to be written down, whether or not there are commands

    @property
    def idle(self) -> bool:
        """Whether the state is exactly what the log says."""
        return not self._appends

    def begin(self, now_us: int) -> list[Effect]:
        """Tell all brokers who leads, so that they repeat what nobody has answered."""
        pulses = self.attention.greet()
        return [*pulses, self._set_check(now_us), SetTimer(name=CoordinatorTimer.PLAN, delay_us=LOOK_US)]

    # ── what brokers say ────────────────────────────────────────────────────────────────────────────────────

    def hear(self, message: Message, now_us: int) -> list[Effect]:
        match message:
            case Submit():
                return self._submitted(message, now_us)
            case Beat():
                return self._beat(message, now_us)
            case Seen(broker=broker, incarnation=incarnation, number=number):
                return self._seen(broker, number) if self.state.is_member(broker, incarnation) else []
            case Refresh():
                return self._refresh(message, now_us)
            case Load(broker=broker, incarnation=incarnation):
                if self.state.is_member(broker, incarnation):
                    self.placing.heard(message, now_us)
            case Links(broker=broker, incarnation=incarnation) if self.state.is_member(broker, incarnation):
                hinted = self.attention.closed(message, now_us)
                asked = self.rerouting.hear(message, now_us)
                return [
                    *hinted,
                    *asked,
                    *self._reroute(now_us),
                    *([self._set_check(now_us)] if hinted else ()),
                ]
        return []

    def _submitted(self, message: Submit, now_us: int) -> list[Effect]:
        broker, incarnation = message.broker, message.incarnation
        expected = self._next(broker, incarnation)
        if expected is None:
            return self._answer(broker, Unknown(self.state.epoch, incarnation))
        if message.first > expected:
            return self._answer(broker, Expected(self.state.epoch, incarnation, expected))
        fresh = message.commands[expected - message.first :]
        if not fresh or not _is_name(broker) or (expected == 1) != isinstance(fresh[0], Joined):
            return []
        member = self.state.members.get(broker)
        applied = member.applied if member is not None and member.incarnation == incarnation else 0
        if expected - applied > PENDING_MAX or self._uncovered() > self._wait_bytes:
            return []
        if isinstance(fresh[0], Joined) and not fits(fresh[0].speaks, spoken := self.state.spoken(broker)):
            return self._turn_away(broker, incarnation, fresh[0].speaks, spoken)
        if isinstance(fresh[0], Joined) and self._is_late(fresh[0].info):
            return self._answer(broker, Unknown(self.state.epoch, incarnation))
        self._waiting.append(Said(broker, incarnation, expected, fresh))
        self._taken[broker] = (incarnation, expected + len(fresh))
        self.attention.sign(broker, now_us)
        return self.pump(now_us)

    def _is_late(self, info: BrokerInfo) -> bool:
        """Whether a standby comes to take a place in which there is somebody again: it stays a standby."""
        member = self.state.members.get(info.id)
        return bool(info.certified) and member is not None and member.info.certified != info.certified

    def _turn_away(self, broker: str, incarnation: int, own: Levels, spoken: Levels) -> list[Effect]:
        facts = {"broker": broker, "speaks": f"{own.oldest}-{own.newest}", "level": self.state.level}
        said = Say(text="a broker of another release cannot join", level="error", facts=facts)
        return [said, *self._answer(broker, Unspoken(self.state.epoch, incarnation, spoken))]

    def _raise(self, now_us: int) -> None:
        """Work at the highest level that everybody speaks, when they have done so for a while."""
        newest = self.state.spoken().newest
        if not self.state.level < newest < ANY or not self.state.members:
            self._above_us = None
        elif self._above_us is None:
            self._above_us = now_us
        elif now_us - self._above_us >= self._raise_after_us:
            self._above_us = None
            self._waiting.append(Raised(newest))

    def _next(self, broker: str, incarnation: int) -> int | None:
        """The number of the command that comes next; None if that incarnation is over."""
        taken, number = self._taken.get(broker, (-1, 0))
        if taken == incarnation:
            return number
        member = self.state.members.get(broker)
        if member is not None and member.incarnation == incarnation:
            return member.applied + 1
        return None if incarnation <= max(taken, self.state.incarnations.get(broker, -1)) else 1

    def _beat(self, message: Beat, now_us: int) -> list[Effect]:
        broker = message.broker
        if not self.state.is_member(broker, message.incarnation):
            if message.incarnation <= self.state.incarnations.get(broker, -1):
                self.attention.detector.refute(broker, message.incarnation, now_us)
                return self._answer(broker, Unknown(self.state.epoch, message.incarnation))
            if broker in self._taken:
                self.attention.sign(broker, now_us)  # it has joined, and waits for the log
            return []
        if message.recruited and self.recruits.adopt(self.state.members[broker].info, now_us):
            self._heed_recruits()
        answer = self.attention.beat(message, now_us)
        return [*self._seen(broker, message.seen), *answer]

    def _seen(self, broker: str, number: int) -> list[Effect]:
        return self._tell_clear(self._clearance.saw(broker, number))

    def _refresh(self, message: Refresh, now_us: int) -> list[Effect]:
        if not self.state.is_member(message.broker, message.incarnation):
            return []
        wanted = Refreshed(message.broker, message.incarnation)
        if wanted not in self._waiting:
            self._waiting.append(wanted)
        return self.pump(now_us)

    def present(self, event: Presence, now_us: int) -> list[Effect]:
        """The bus has found a broker that was asked, or not."""
        found = self.attention.answered(event, now_us)
        if found is None:
            return [self._set_check(now_us)]
        lost, said = found
        self._promotions.vanished(lost.broker, self.attention.would_miss_us(lost.broker, now_us))
        self._waiting.append(lost)
        return [said, *self.pump(now_us), self._set_check(now_us)]

    # ── appending ───────────────────────────────────────────────────────────────────────────────────────────

    def pump(self, now_us: int) -> list[Effect]:
        """Append what waits, unless an append is under way."""
        if self._appends or not (self._waiting or self._tick):
            return []
        if now_us < self._paced_us:
            return [SetTimer(name=CoordinatorTimer.PACE, delay_us=self._paced_us - now_us)]
        commands, size = [], 0
        while self._waiting and size <= COMMANDS_MAX_BYTES:
            command = self._waiting.popleft()
            if isinstance(command, Lost) and not self.attention.believes(command):
                continue  # it was heard while this waited
            raw = encode_command(command)
            size += len(memoryview(raw))
            commands.append((command, raw))
            if isinstance(command, Said) and self._taken.get(command.broker) == _end(command):
                del self._taken[command.broker]  # from here on the state knows
        if not (commands or self._tick):
            return []
        self._tick = False
        before = {broker: member.incarnation for broker, member in self.state.members.items()}
        promised = dict(self.state.survival.promotions)
        at_us = self._clock_us + now_us - self._began_us
        self._draft = self._drafter.draft(self.state, at_us, commands, self.previous, self._clearance.waits)
        self._appends.extend(self._draft.appends)
        told = sum(map(len, self._draft.appends)) - 1
        self._paced_us = now_us + PACE_US_EACH * told if told > PACE_LEAST else 0
        effects: list[Effect] = []
        members = self.state.members
        gone = [
            broker
            for broker, incarnation in before.items()
            if (member := members.get(broker)) is None or member.incarnation != incarnation
        ]
        for broker in gone:
            effects += self._tell_clear(self._clearance.gone(broker))
        self._appended_us = now_us
        effects += self._append()
        if members.keys() != before.keys():
            self.attention.changed(now_us)
            self._plans.changed(now_us)
            for command, _ in commands:
                if isinstance(command, Said) and any(isinstance(each, Left) for each in command.commands):
                    returns_us = now_us + RESTART_US if self.recruits.returns(command.broker) else 0
                    self._promotions.left(command.broker, promised.get(command.broker), now_us, returns_us)
            effects += self.promote(now_us)
        return effects

    def _append(self) -> list[Effect]:
        self.asked = self._request("append")
        return [
            Append(
                request=self.asked,
                log=self._log,
                records=self._appends[0],
                expected=self._expected(),
            ),
            SetTimer(name=CoordinatorTimer.APPEND, delay_us=ANSWER_US),
        ]

    def _expected(self) -> int | None:
        return self._last

    def again(self) -> list[Effect]:
        """The append was not answered, or failed: the same records once more, so that what did happen happens once."""
        return self._append() if self._appends else []

    def failed(self, error: TocsinError) -> list[Effect]:
        """The append failed, and may succeed later."""
        delay_us = min(RETRY_MAX_US, RETRY_FIRST_US << min(self._failures, 10))
        self._failures += 1
        self.asked = ""
        effects: list[Effect] = [SetTimer(name=CoordinatorTimer.APPEND, delay_us=delay_us)]
        if isinstance(error, StoreFull):
            effects.append(Say(level="error", text=str(error)))
        return effects

    def stored(self, positions: tuple[int, ...], now_us: int) -> list[Effect]:
        """The append is durable; call ``pump`` afterwards."""
        assert self._draft is not None
        if self._appends[0] is self._draft.appends[0]:
            self.previous = positions[0]
        self._appends.popleft()
        self._last = positions[-1]
        self._failures = 0
        self.asked = ""
        self._look_at_store(now_us)
        self._appended_us = now_us
        if self._appends:
            return self._append()
        return self._settled(self._draft, now_us)

    def _settled(self, draft: Draft, now_us: int) -> list[Effect]:
        self._draft = None
        effects: list[Effect] = []
        rows: dict[int, tuple[Mapping[str, int], list[Cleared]]] = {}  # by identity of what they need
        for broker, heard in draft.heard.items():
            if heard.clear:
                continue
            if heard.about:
                clear = self._clearance.add(
                    broker, heard.incarnation, heard.applied, heard.needs, now_us, heard.about
                )
                effects += self._tell_clear(clear)
            else:
                row = rows.setdefault(id(heard.needs), (heard.needs, []))[1]
                row.append(Cleared(broker, heard.incarnation, heard.applied))
        for needs, speakers in rows.values():
            effects += self._tell_clear(self._clearance.add_row(speakers, needs, now_us))
        return effects

    def _tell_clear(self, clear: Iterable[Cleared]) -> list[Effect]:
        effects: list[Effect] = []
        for broker, incarnation, number in clear:
            effects += self._answer(broker, KnownUpTo(self.state.epoch, incarnation, number))
        return effects

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self, now_us: int) -> list[Effect]:
        """Look for brokers that are silent, and for what ends by itself."""
        if self._appends:
            self._look_at_store(now_us)
        effects = self.attention.ask_again(now_us)
        for lost, said in self.attention.look(now_us):
            self._waiting.append(lost)
            effects.append(said)
        effects += self.attention.questions()
        self._clearance.forget(now_us)
        self._raise(now_us)
        self.attention.refresh(now_us)
        at_us, due_us = self._clock_us + now_us - self._began_us, self.state.next_due_us()
        if due_us is not None and (at_us >= due_us or at_us - self.state.clock_us >= TICK_US):
            self._tick = True
        return [*effects, *self.pump(now_us), self._set_check(now_us)]

    def _look_at_store(self, now_us: int) -> None:
        """An append that takes long says that beats may be late as well: they come the same way."""
        if now_us - self._appended_us > SLOW_US:
            self.attention.detector.slow(now_us)

    def _set_check(self, now_us: int) -> Effect:
        return SetTimer(name=CoordinatorTimer.CHECK, delay_us=self.attention.delay_us(now_us))

    # ── links ───────────────────────────────────────────────────────────────────────────────────────────────

    def _reroute(self, now_us: int) -> list[Effect]:
        """Say in the log what follows from how links are, if it does not say so already."""
        if any(isinstance(each, Rerouted | Shunned) for each in self._waiting):
            return []  # what that does is seen first
        commands, said = self.rerouting.look(now_us)
        self._waiting += commands
        return [*said, *self.pump(now_us)] if commands else []

    # ── tiers ───────────────────────────────────────────────────────────────────────────────────────────────

    def place(self, now_us: int) -> list[Effect]:
        """Say in the log which slots move, unless what was said before is still on its way there."""
        self.growth.look(now_us)
        if self._appends or any(isinstance(each, Placed) for each in self._waiting):
            return []
        commands = self.placing.look(now_us)
        self._waiting += commands
        return self.pump(now_us) if commands else []

    # ── backups ─────────────────────────────────────────────────────────────────────────────────────────────

    def look_at_plan(self, now_us: int) -> list[Effect]:
        effects: list[Effect] = [SetTimer(name=CoordinatorTimer.PLAN, delay_us=LOOK_US)]
        effects += self._look_for_recruits(now_us)
        brokers = tuple(
            each for each in self._infos() if able(each) and each.id not in self.recruits.unplanned
        )
        alone = len(brokers) < 2 and not self.state.survival.plan
        due = self._plans.is_due(now_us)
        if due and not alone:
            effects.append(WantPlan(brokers=brokers, previous=dict(self.state.survival.plan)))
        if due or self._promotions.is_pending(now_us):
            links = links_of(self.rerouting.distances.rows())
            effects += self._promotions.ask(self.state.survival, self._infos(), links)
        return [*effects, *self.promote(now_us), *self._reroute(now_us), *self.place(now_us)]

    def _infos(self) -> list[BrokerInfo]:
        return [member.info for member in self.state.members.values()]

    def told(self, event: StandbyTold, now_us: int) -> list[Effect]:
        """A standby has said how fit it is, or a broker that may be recruited."""
        member = self.state.members.get(event.standby)
        if member is not None and able(member.info):
            self.recruits.told(event)
            return []
        return self.promote(now_us) if self._promotions.told(event, now_us) else []

    def promote(self, now_us: int) -> list[Effect]:
        """Give standbys the places of brokers that are gone."""
        survival = self.state.survival
        pending = [each for each in self._waiting if isinstance(each, Promoted)]
        promoted, effects = self._promotions.look(survival, self._infos(), pending, now_us)
        self._waiting += promoted
        if (next_us := self._promotions.next_us(now_us)) is not None:
            effects.append(SetTimer(name=CoordinatorTimer.PROMOTE, delay_us=next_us - now_us))
        return [*effects, *(self.pump(now_us) if promoted else ())]

    def _look_for_recruits(self, now_us: int) -> list[Effect]:
        """Recruit brokers as standbys, and release them."""
        attention, unplanned = self.attention, self.recruits.unplanned
        network = Network(
            self.state.survival,
            self._infos(),
            attention.balance.ordered,
            attention.heard_loads,
            attention.balance.clients,
            any(isinstance(each, Planned) for each in self._waiting),
        )
        effects = self.recruits.look(network, now_us)
        if self.recruits.unplanned != unplanned:
            self._plans.changed(now_us)
        self._heed_recruits()
        return effects

    def _heed_recruits(self) -> None:
        balance = self.attention.balance
        balance.recruits, balance.standing_by = self.recruits.emptying, self.recruits.standing_by
        self.attention.roles = self.recruits.roles

    def planned(self, made: PlanMade, now_us: int) -> list[Effect]:
        self._plans.made(now_us)
        backups = made.backups
        if any({each.local, each.remote} & self.recruits.unplanned for each in backups.values()):
            self._plans.changed(now_us)  # it was asked for before that broker was empty
            return []
        known = self.state.survival.plan
        if all(known.get(broker, NO_BACKUPS) == each for broker, each in backups.items()):
            return []
        rows = tuple((broker, each.local, each.remote) for broker, each in sorted(backups.items()))
        self._waiting.append(Planned(rows))
        return self.pump(now_us)

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, broker: str, message: Unknown | Expected | KnownUpTo | Unspoken) -> list[Effect]:
        return [Send(to=broker_address(broker), message=message)] if _is_name(broker) else []


def _end(said: Said) -> tuple[int, int]:
    return said.incarnation, said.first + len(said.commands)


def _is_name(broker: str) -> bool:
    """Whether this can be a broker's id, and so a token of a subject."""
    return 0 < len(broker) <= NAME_MAX and broker.isascii() and broker.replace("-", "a").isalnum()
