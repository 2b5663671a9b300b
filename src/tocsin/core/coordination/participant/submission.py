"""How a broker submits its commands: soon, in few messages, and again until the log has them.

``DeclaredState`` is what the broker has said of itself: its filters, its queries and its publishing clients.
``changes`` is what was not said yet, ``all`` is everything, for a broker that joins. Filters that come and go again
before they were declared are not declared at all.

The first command goes at once; commands of the next COALESCE_US gather, and go together. Unacknowledged commands are
sent again: after a while that doubles, when another leads, and from where a leader says that something is missing.

The number of a command says where it stands in its incarnation; the **ticket** is the shell's number for it, and stays
when the broker rejoins. Tickets grow; a command without one has 0. Commands are sent in messages of at most
MESSAGE_MAX_BYTES, and no more than WINDOW_MAX_BYTES ahead of what is acknowledged; unacknowledged ones go again from
the start of the window (``Outgoing``).

A change that the log has is not known to every affected broker yet. It is **clear** when a leader says so, or after
CLEAR_US; tickets become clear in their order, each is told once (``PendingClears``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tocsin.core.coordination.participant.signals import ParticipantTimer, StreamRefused
from tocsin.core.machine import CancelTimer, Effect, Send, SetTimer
from tocsin.model.network import COORDINATOR, BrokerInfo
from tocsin.model.stream import Value
from tocsin.model.versions import speaks
from tocsin.wire.internal.commands import (
    BrokerCommand,
    ClientAway,
    ClientBack,
    ClientGone,
    Interests,
    Joined,
    Left,
    Queries,
    Streams,
    encode_command,
    split,
)
from tocsin.wire.internal.control import Submit
from tocsin.wire.internal.notices import Item, Refused

COALESCE_US: Final = 2_000  # after an immediate command, further changes gather for so long
RESEND_FIRST_US: Final = 300_000
RESEND_MAX_US: Final = 3_000_000
GO_BACK_US: Final = 50_000  # at most so often are commands repeated because one was lost before them
MESSAGE_MAX_BYTES: Final = 256 << 10  # before the command that passes it
WINDOW_MAX_BYTES: Final = 1 << 20
# Enough for another to lead, so that messages published in that time are late and not lost.
CLEAR_US: Final = 5_000_000
TOPICS_MAX: Final = 64  # streams of a client in one command


class _Client:
    __slots__ = ("epoch", "expiry_s", "topics")

    def __init__(self, expiry_s: int, epoch: int) -> None:
        self.expiry_s = expiry_s
        self.epoch = epoch
        self.topics: dict[str, None] = {}


class DeclaredState:
    """One broker's declarations to the coordinator."""

    def __init__(self) -> None:
        self.filters: dict[str, None] = {}
        self.queries: dict[str, str] = {}  # id → text
        self._clients: dict[str, _Client] = {}  # those that are connected here
        self._filters: dict[str, bool] = {}  # not said yet: wanted, or no longer
        self._queries: dict[str, bool] = {}
        self._users: dict[str, str] = {}  # of those: query → whose client asks it

    def change_filters(self, added: Iterable[str], removed: Iterable[str]) -> None:
        for text in added:
            if text not in self.filters:
                self.filters[text] = None
                _flip(self._filters, text, True)
        for text in removed:
            if text in self.filters:
                del self.filters[text]
                _flip(self._filters, text, False)

    def change_queries(
        self, added: Iterable[tuple[str, str]], removed: Iterable[str], user: str = ""
    ) -> None:
        for query in removed:
            if query in self.queries:
                del self.queries[query]
                self._queries[query] = False
        for query, text in added:
            if query not in self.queries:
                self.queries[query] = text
                self._queries[query] = True  # declared in any case: the answer is wanted
                self._users[query] = user

    def note(self, command: Streams | ClientAway | ClientBack | ClientGone) -> None:
        """Remember the connected clients and their streams."""
        if isinstance(command, ClientAway | ClientGone):
            self._clients.pop(command.client, None)
        elif command.client:
            client = self._clients.setdefault(command.client, _Client(0, 0))
            client.expiry_s, client.epoch = command.expiry_s, command.epoch
            if isinstance(command, Streams):
                client.topics.update((topic, None) for topic, _ in command.changes)

    def changes(self) -> list[BrokerCommand]:
        """Take the commands that were not declared yet."""
        filters, self._filters = self._filters, {}
        queries, self._queries = self._queries, {}
        users, self._users = self._users, {}
        return [*_interests(filters), *self._asked(queries, users)]

    def all(self) -> list[BrokerCommand]:
        """Everything, from now on said."""
        self._filters, self._queries, self._users = {}, {}, {}
        return [
            *_interests(dict.fromkeys(self.filters, True)),
            *self._asked(dict.fromkeys(self.queries, True), None),
            *self._present(),
        ]

    def _asked(self, queries: dict[str, bool], users: dict[str, str] | None) -> Iterator[BrokerCommand]:
        """``users``: None if everything is declared once more, for which no user is charged."""
        if queries:
            for run in split(list(queries), lambda each: 4 * len(self.queries.get(each, "")) + 40):
                asked = [each for each in run if queries[each]]
                added = tuple((each, self.queries[each]) for each in asked)
                removed = tuple(each for each in run if not queries[each])
                yield Queries(added, removed, () if users is None else tuple(users[each] for each in asked))

    def _present(self) -> Iterator[BrokerCommand]:
        for name, client in self._clients.items():
            yield ClientBack(name, client.expiry_s, client.epoch)
            topics = list(client.topics)
            for start in range(0, len(topics), TOPICS_MAX):
                changes: tuple[tuple[str, dict[str, Value | None]], ...] = tuple(
                    (topic, {}) for topic in topics[start : start + TOPICS_MAX]
                )
                yield Streams(name, client.expiry_s, changes, epoch=client.epoch)


def _interests(filters: dict[str, bool]) -> Iterator[BrokerCommand]:
    if filters:
        for run in split(list(filters), lambda each: 4 * len(each) + 8):  # at most four bytes a character
            added = tuple(each for each in run if filters[each])
            yield Interests(added, tuple(each for each in run if not filters[each]))


def _flip(changes: dict[str, bool], key: str, here: bool) -> None:
    """Note that something came or went; what did both is as it was."""
    if changes.get(key) is (not here):
        del changes[key]
    else:
        changes[key] = here


class _Waiting(NamedTuple):
    number: int
    ticket: int
    since_us: int


class PendingClears:
    """The broker's own changes for which messages wait. Each method that ends waits returns the highest ticket that is
    clear with it; 0 if there is none.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, number: int, ticket: int, now_us: int) -> None:
        self._waiting.append(_Waiting(number, ticket, now_us))

    def up_to(self, number: int) -> int:
        """Commands up to this one are clear."""
        ticket = 0
        while self._waiting and self._waiting[0].number <= number:
            ticket = self._waiting.popleft().ticket
        return ticket

    def all(self, ticket: int = 0) -> int:
        """Nobody is waited for any more, up to this ticket at least."""
        if self._waiting:
            ticket = max(ticket, self._waiting[-1].ticket)
            self._waiting.clear()
        return ticket

    def late(self, now_us: int) -> int:
        """The changes that have waited long enough."""
        ticket = 0
        while self._waiting and now_us - self._waiting[0].since_us >= CLEAR_US:
            ticket = self._waiting.popleft().ticket
        return ticket

    def patience_us(self, now_us: int) -> int:
        """How long the first one still waits."""
        return max(0, self._waiting[0].since_us + CLEAR_US - now_us)


class RoutedChanges:
    """The changes of the shell whose consequences are still to be told in this incarnation."""

    def __init__(self) -> None:
        self._coming: deque[tuple[int, int]] = deque()  # numbers of commands, and their tickets
        self._last = 0  # ticket

    def begin(self, number: int) -> None:
        """A new incarnation: everything so far is said once more in the commands up to this number."""
        self._coming = deque([(number, self._last)])

    def add(self, number: int, ticket: int) -> None:
        self._coming.append((number, ticket))
        self._last = ticket

    def up_to(self, number: int) -> int:
        """The highest ticket of which everything that follows was told with this command; 0: none is new."""
        ticket = 0
        while self._coming and self._coming[0][0] <= number:
            ticket = self._coming.popleft()[1]
        return ticket


class _Command(NamedTuple):
    command: BrokerCommand
    ticket: int
    size: int


class Outgoing:
    """The unacknowledged commands of one broker."""

    def __init__(self, broker: str) -> None:
        self.incarnation = 0
        self._broker = broker
        self._pending: deque[_Command] = deque()  # not acknowledged, in order
        self._applied = 0  # number of the last that is acknowledged
        self._sent = 0  # how many of the pending were sent
        self._sent_bytes = 0  # of those

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def applied(self) -> int:
        return self._applied

    @property
    def last(self) -> int:
        """The number of the last command."""
        return self._applied + len(self._pending)

    def begin(self, incarnation: int, commands: Iterable[BrokerCommand]) -> None:
        """A new incarnation: these come first, then what is still to be acknowledged and has a ticket."""
        self.incarnation = incarnation
        kept = [each for each in self._pending if each.ticket]
        self._pending = deque()
        self._applied = 0
        self.repeat()
        for command in commands:
            self.add(command)
        self._pending.extend(kept)

    def add(self, command: BrokerCommand, ticket: int = 0) -> int:
        """One more; its number."""
        self._pending.append(_Command(command, ticket, len(memoryview(encode_command(command)))))
        return self.last

    def send(self) -> list[Submit]:
        """The commands that may be sent and were not."""
        messages: list[Submit] = []
        while self._sent < len(self._pending) and self._sent_bytes < WINDOW_MAX_BYTES:
            first, size, run = self._sent, 0, []
            while self._sent < len(self._pending) and size < MESSAGE_MAX_BYTES:
                each = self._pending[self._sent]
                run.append(each.command)
                size += each.size
                self._sent += 1
            self._sent_bytes += size
            messages.append(Submit(self._broker, self.incarnation, self._applied + first + 1, tuple(run)))
        return messages

    def ticket(self, number: int) -> int:
        """The ticket of a command that is not acknowledged yet; 0 if it has none."""
        place = number - self._applied - 1
        return self._pending[place].ticket if 0 <= place < len(self._pending) else 0

    def repeat(self) -> None:
        """Nothing counts as sent any more."""
        self._sent = self._sent_bytes = 0

    def acknowledge(self, applied: int) -> int:
        """Commands up to this number are in the log; the newest ticket among them, 0 if there is none."""
        ticket = 0
        while self._applied < applied and self._pending:
            done = self._pending.popleft()
            self._applied += 1
            if self._sent:
                self._sent -= 1
                self._sent_bytes -= done.size
            ticket = done.ticket or ticket
        return ticket


class Submission:
    """Sends one broker's commands to the leader until they are acknowledged."""

    def __init__(self, info: BrokerInfo) -> None:
        self.roll = DeclaredState()
        self._info = info
        self._outgoing = Outgoing(info.id)
        self._routed = RoutedChanges()
        self._telling = False  # the timer runs
        self._resend_us = RESEND_FIRST_US
        self._went_back_us = -GO_BACK_US  # when commands were repeated because the leader had missed some

    @property
    def incarnation(self) -> int:
        """0 before the first; until then nothing is sent."""
        return self._outgoing.incarnation

    @property
    def applied(self) -> int:
        """The number of the last command that is in the log."""
        return self._outgoing.applied

    @property
    def logged(self) -> bool:
        """Whether everything that was declared is in the log."""
        return not len(self._outgoing) and not self._telling

    def ticket(self, number: int) -> int:
        """The ticket of a command that is not acknowledged yet; 0 if it has none."""
        return self._outgoing.ticket(number)

    def readdress(self, info: BrokerInfo) -> None:
        """The broker is reached elsewhere: said with the next incarnation."""
        self._info = info

    def begin(self, incarnation: int) -> list[Effect]:
        """A new incarnation: join, and say everything."""
        commands = [Joined(self._info, speaks()), *self.roll.all()]
        self._outgoing.begin(incarnation, commands)
        self._routed.begin(len(commands))
        return self._send()

    def add(self, command: Streams | ClientAway | ClientBack | ClientGone, ticket: int) -> int:
        """A change of a client's, to be told next; its number."""
        self.roll.note(command)
        number = self._outgoing.add(command, ticket)
        self._routed.add(number, ticket)
        return number

    def routed(self, number: int) -> int:
        """Everything was told that follows from the commands up to this number: the highest ticket among them for the
        first time; 0 if there is none."""
        return self._routed.up_to(number)

    def tell(self) -> list[Effect]:
        """Submit the changes: at once, unless something was submitted just now."""
        if self._telling:
            return []
        self._telling = True
        return [*self._say(), SetTimer(name=ParticipantTimer.TELL, delay_us=COALESCE_US)]

    def told(self) -> list[Effect]:
        """Send the gathered commands, and gather the next; if there were none, the next goes at once."""
        self._telling = False
        said = self._say()
        return [*said, *self.tell()] if said else []

    def _say(self) -> list[Effect]:
        if not self.incarnation:
            return []  # it is all said on joining
        for command in self.roll.changes():
            self._outgoing.add(command)
        return self._send()

    def _send(self) -> list[Effect]:
        messages = self._outgoing.send()
        if not messages:
            return []
        resend = SetTimer(name=ParticipantTimer.RESEND, delay_us=self._resend_us)
        return [*(Send(to=COORDINATOR, message=message) for message in messages), resend]

    def resend(self) -> list[Effect]:
        """Say again what was not acknowledged."""
        self._outgoing.repeat()
        self._resend_us = min(RESEND_MAX_US, 2 * self._resend_us)
        return self._send()

    def led_anew(self) -> list[Effect]:
        """The new leader may not know what the last one was sent."""
        self._resend_us = RESEND_FIRST_US
        return self.resend()

    def go_back(self, now_us: int) -> list[Effect]:
        """The leader has missed something; it says so for every message behind the lost one."""
        if now_us - self._went_back_us < GO_BACK_US:
            return []
        self._went_back_us = now_us
        self._outgoing.repeat()
        return self._send()

    def acknowledge(self, applied: int) -> tuple[int, list[Effect]]:
        """Commands up to this number are in the log: the newest ticket among them (0: none), and what to do."""
        self._resend_us = RESEND_FIRST_US
        ticket = self._outgoing.acknowledge(applied)
        effects: list[Effect] = []
        if not len(self._outgoing):
            effects.append(CancelTimer(name=ParticipantTimer.RESEND))
        return ticket, [*effects, *self._send()]

    def refusals(self, items: Iterable[Item]) -> list[Effect]:
        """The refusals in a notice; to be asked before it is acknowledged."""
        return [
            StreamRefused(subject=item.subject, problem=item.problem, ticket=self.ticket(item.number))
            for item in items
            if isinstance(item, Refused)
        ]

    def leave(self) -> list[Effect]:
        """The last command, sent once."""
        if not self.incarnation:
            return []
        self._outgoing.add(Left())
        self._outgoing.repeat()
        return [Send(to=COORDINATOR, message=message) for message in self._outgoing.send()]
