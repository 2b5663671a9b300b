"""How a broker submits its commands: soon, in few messages, and again until the log has them.

The first command goes at once; commands of the next COALESCE_US gather, and go together. Unacknowledged commands are
sent again: after a while that doubles, when another leads, and from where a leader says that something is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tocsin.core.coordination.participant.declared import DeclaredState
from tocsin.core.coordination.participant.outgoing import Outgoing
from tocsin.core.coordination.participant.signals import ParticipantTimer, StreamRefused
from tocsin.core.machine import CancelTimer, Effect, Send, SetTimer
from tocsin.model.message import COORDINATOR
from tocsin.model.network import BrokerInfo
from tocsin.model.versions import speaks
from tocsin.wire.commands import ClientAway, ClientBack, ClientGone, Joined, Left, Streams
from tocsin.wire.notices import Item, Refused

COALESCE_US: Final = 2_000  # after an immediate command, further changes gather for so long
RESEND_FIRST_US: Final = 300_000
RESEND_MAX_US: Final = 3_000_000
GO_BACK_US: Final = 50_000  # at most so often are commands repeated because one was lost before them


class Submission:
    """Sends one broker's commands to the leader until they are acknowledged."""

    def __init__(self, info: BrokerInfo) -> None:
        self.roll = DeclaredState()
        self._info = info
        self._outgoing = Outgoing(info.id)
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

    def begin(self, incarnation: int) -> list[Effect]:
        """A new incarnation: join, and say everything."""
        self._outgoing.begin(incarnation, [Joined(self._info, speaks()), *self.roll.all()])
        return self._send()

    def add(self, command: Streams | ClientAway | ClientBack | ClientGone, ticket: int) -> int:
        """A change of a client's, to be told next; its number."""
        self.roll.note(command)
        return self._outgoing.add(command, ticket)

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
