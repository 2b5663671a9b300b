"""The users of the counter: clients that count, a notifier that follows the log, and a listener that is told.

Transitions of ``Client``:

    new       Started → counting
    counting  TimerFired, Received

Transitions of ``Listener``:

    new        Started → listening
    listening  Received

Transitions of ``Notifier``:

    new        Started → starting
    starting   Stored → following
               TimerFired
    following  Followed, Received, TimerFired
               Stored → nothing
    *          Received, StoreFailed → nothing
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import ClassVar

from tocsin.core.machine import (
    Effect,
    Event,
    Followed,
    FollowLog,
    GetKey,
    PutKey,
    Received,
    Send,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    Table,
    TableMachine,
    TimerFired,
)
from tocsin.model.network import Address
from tocsin.sim.scenarios.counter.messages import (
    LOG,
    POSITIONS,
    Added,
    Counted,
    Increment,
    NotHolder,
    Notice,
    Noticed,
    fact,
)

PATIENCE_US = 700_000  # before a request is repeated, to the next server
REDIRECT_US = 100_000  # before the server that was named is asked
THINK_MASK = 0x7FFFF  # up to half a second between an answer and the next request
POSITION = "notifier"


class ClientState(StrEnum):
    """Where a client is."""

    NEW = "new"
    COUNTING = "counting"


class ClientTimer(StrEnum):
    """The timers of a client."""

    ASK = "ask"
    IMPATIENT = "impatient"


class Client(TableMachine):
    """Asks for increments one after the other, each until it is counted."""

    timers = ClientTimer
    state: ClientState = ClientState.NEW

    def __init__(self, address: Address, servers: tuple[Address, ...], increments: int) -> None:
        self.address = address
        self.counted = 0  # increments that were acknowledged; the next has the next number
        self._servers = servers
        self._increments = increments
        self._server = servers[0]
        self._chance = 0

    @property
    def done(self) -> bool:
        return self.counted == self._increments

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        self.state = ClientState.COUNTING
        self._chance = event.incarnation
        return self._think()

    def _think(self) -> list[Effect]:
        if self.done:
            return []
        # Knuth's multiplier: thinking times that differ, from the one number that chance gave us.
        self._chance = (self._chance * 6_364_136_223_846_793_005 + 1) & ((1 << 64) - 1)
        return [SetTimer(name=ClientTimer.ASK, delay_us=(self._chance >> 40) & THINK_MASK)]

    def _ask(self) -> list[Effect]:
        number = self.counted + 1
        cause = f"{self.address}#{number}"
        return [
            Send(cause=cause, to=self._server, message=Increment(self.address, number)),
            SetTimer(cause=cause, name=ClientTimer.IMPATIENT, delay_us=PATIENCE_US),
        ]

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        if self.done:
            return []
        if event.name == ClientTimer.IMPATIENT:
            place = self._servers.index(self._server) + 1
            self._server = self._servers[place % len(self._servers)]
        else:
            assert event.name == ClientTimer.ASK
        return self._ask()

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        message = event.message
        if isinstance(message, Counted) and message.number == self.counted + 1:
            self.counted += 1
            self._server = event.sender
            # The timer of the request that was answered must not ask for the next one.
            return [SetTimer(name=ClientTimer.IMPATIENT, delay_us=2 * PATIENCE_US), *self._think()]
        if isinstance(message, NotHolder) and message.number == self.counted + 1 and message.holder:
            self._server = message.holder
            return [SetTimer(cause=event.cause, name=ClientTimer.ASK, delay_us=REDIRECT_US)]
        return []

    table: ClassVar[Table] = {
        (ClientState.NEW, Started): _start,
        (ClientState.COUNTING, TimerFired): _on_timer,
        (ClientState.COUNTING, Received): _on_message,
    }


class NotifierState(StrEnum):
    """Where a notifier is."""

    NEW = "new"
    STARTING = "starting"
    FOLLOWING = "following"


class NotifierTimer(StrEnum):
    """The timers of a notifier."""

    GET = "get"
    TELL = "tell"


class Notifier(TableMachine):
    """Tells the listener every increment, in order, at least once, from the position that it keeps.

    The position moves when the listener has confirmed: what a crash repeats is harmless, what it skipped would be
    lost.
    """

    timers = NotifierTimer
    state: NotifierState = NotifierState.NEW

    def __init__(self, listener: Address) -> None:
        self._listener = listener
        self._notices: deque[tuple[Notice, str]] = deque()  # the first is under way
        self._puts = 0

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        self.state = NotifierState.STARTING
        return self._get(event.cause)

    def _get(self, cause: str) -> list[Effect]:
        # Asked again for as long as it takes, for an answer may never come.
        return [
            GetKey(cause=cause, request="position", table=POSITIONS.name, key=POSITION),
            SetTimer(cause=cause, name=NotifierTimer.GET, delay_us=2 * PATIENCE_US),
        ]

    def _got(self, event: Stored, now_us: int) -> list[Effect]:
        if event.request != "position":
            return []
        self.state = NotifierState.FOLLOWING
        position = 0 if event.value is None else int(event.value.value)
        return [FollowLog(cause=event.cause, log=LOG.name, subject=">", start=position + 1)]

    def _on_entry(self, event: Followed, now_us: int) -> list[Effect]:
        what = fact(event.entry.payload)
        if not isinstance(what, Added):
            return []
        self._notices.append((Notice(event.entry.position, what.count), event.cause))
        return self._tell() if len(self._notices) == 1 else []

    def _tell(self) -> list[Effect]:
        if not self._notices:
            return []
        notice, cause = self._notices[0]
        return [
            Send(cause=cause, to=self._listener, message=notice),
            SetTimer(cause=cause, name=NotifierTimer.TELL, delay_us=PATIENCE_US),
        ]

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        message = event.message
        if not isinstance(message, Noticed) or not self._notices:
            return []
        if self._notices[0][0].position != message.position:
            return []
        self._notices.popleft()
        return [self._keep(event.cause, message.position), *self._tell()]

    def _keep(self, cause: str, position: int) -> Effect:
        """A put that is lost, or that overtakes a later one, only means that more is repeated."""
        self._puts += 1
        return PutKey(
            cause=cause,
            request=f"keep#{self._puts}",
            table=POSITIONS.name,
            key=POSITION,
            value=str(position).encode(),
        )

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name == NotifierTimer.GET:
            return self._get(event.cause) if self.state is NotifierState.STARTING else []
        assert event.name == NotifierTimer.TELL
        return self._tell()

    def _ignore(self, event: Event, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        (NotifierState.NEW, Started): _start,
        (NotifierState.STARTING, Stored): _got,
        (NotifierState.STARTING, TimerFired): _on_timer,
        (NotifierState.FOLLOWING, Followed): _on_entry,
        (NotifierState.FOLLOWING, Received): _on_message,
        (NotifierState.FOLLOWING, Stored): _ignore,
        (NotifierState.FOLLOWING, TimerFired): _on_timer,
        ("*", Received): _ignore,
        ("*", StoreFailed): _ignore,
    }


class ListenerState(StrEnum):
    """Whether a listener hears the notifier of the counter."""

    NEW = "new"
    LISTENING = "listening"


class Listener(TableMachine):
    """Confirms what it is told."""

    state: ListenerState = ListenerState.NEW

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        message = event.message
        if not isinstance(message, Notice):
            return []
        return [Send(cause=event.cause, to=event.sender, message=Noticed(message.position))]

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        self.state = ListenerState.LISTENING
        return []

    table: ClassVar[Table] = {
        (ListenerState.NEW, Started): _start,
        (ListenerState.LISTENING, Received): _on_message,
    }
