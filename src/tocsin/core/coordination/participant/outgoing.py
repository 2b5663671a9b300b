"""A broker's commands on their way to the leader: numbered, and sent again until they are in the log.

The number of a command says where it stands in its incarnation; the **ticket** is the shell's number for it, and stays
when the broker rejoins. Tickets grow; a command without one has 0.

Commands are sent in messages of at most MESSAGE_MAX_BYTES, and no more than WINDOW_MAX_BYTES ahead of what is
acknowledged. Unacknowledged commands are sent again from the start of the window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from tocsin.wire.commands import BrokerCommand, encode_command
from tocsin.wire.control import Submit

MESSAGE_MAX_BYTES: Final = 256 << 10  # before the command that passes it
WINDOW_MAX_BYTES: Final = 1 << 20


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
