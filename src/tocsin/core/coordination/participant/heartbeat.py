"""A broker's heartbeat: what its beats say and ask, and what the leader's answers mean.

The leader **hears** the broker if it answers its beats. An answer names the beat; the time when that beat was sent is
the last moment at which the broker knows it was heard. If that is longer ago than the longest silence that a leader
tolerates, the leader counts this broker as lost, or soon will: the broker is **orphaned**. It is also orphaned when a
leader says that its incarnation is over; if that leader falls silent too, it is orphaned once more. It is adopted
when a beat is answered again. The broker checks all of this with each beat.

A broker that was never heard is not orphaned: nobody has anything of it.

The broker is **doubtful** much earlier: as soon as the time since then is longer than the shortest silence after which
a leader may count it as lost. From that moment others may not have waited for it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tocsin.core.coordination.participant.signals import (
    Adopted,
    ClientsToMove,
    DestinationsChanged,
    GuestCame,
    GuestWent,
    Loaded,
    Orphaned,
    SendHome,
)
from tocsin.core.machine import Effect
from tocsin.core.survival import refuges as refuge
from tocsin.core.survival.homes import Homes
from tocsin.model.network import BrokerInfo
from tocsin.wire.internal.control import Beat, Pulse

ANSWERS_US: Final = 1_000_000  # within which a leader answers some beat, if there are any
BEATS: Final = 4  # what the leader said is believed for so many answers' time: three may be lost
HOMES_US: Final = 2_000_000  # between two questions about homes that are away
UNANSWERED_MAX: Final = 1_024  # beats whose times are remembered


class Heartbeat:
    """Sends one broker's heartbeats, and notices when no leader answers."""

    def __init__(
        self, info: BrokerInfo, interval_us: int, suspect_after_us: int, suspect_least_us: int
    ) -> None:
        self.interval_us = interval_us
        self.load = self.clients = 0  # how full the broker is, and how many clients it has
        self._refuses = False  # it takes no new clients, because it is being emptied
        self._moving = False  # the leader wants clients of this broker elsewhere …
        self._recruited = False  # … so that it can stand by
        self.orphaned = False
        self._told = False  # by a leader that it is an orphan, and it has been heard since
        self.guests = Homes(info, max(1, HOMES_US // interval_us))
        self._id = info.id
        self._suspect_after_us = suspect_after_us  # the longest silence that a leader tolerates …
        self._suspect_least_us = suspect_least_us  # … and the shortest one that it may not
        self._number = 0  # of the last beat
        self._unanswered: deque[tuple[int, int]] = deque(maxlen=UNANSWERED_MAX)  # with when they were sent
        self._heard_us: int | None = None  # when a leader said something
        self._hears_us: int | None = None  # when the newest beat was sent that a leader has answered
        self._refuges: tuple[BrokerInfo, ...] = ()  # where our clients can go, best first
        self._checksum = 0  # of those

    def note(self, event: Loaded | GuestCame | GuestWent) -> None:
        """Something about clients that beats tell, or ask."""
        match event:
            case Loaded(load=load, clients=clients, refuses=refuses):
                self.load, self.clients, self._refuses = load, clients, refuses
            case GuestCame(client=client, home=home, scheme=scheme):
                self.guests.came(client, home, scheme)
            case GuestWent(client=client):
                self.guests.went(client)

    # ── beats ───────────────────────────────────────────────────────────────────────────────────────────────

    def beat(self, incarnation: int, seen: int, now_us: int) -> Beat:
        """The next one."""
        self._number += 1
        self._unanswered.append((self._number, now_us))
        return Beat(
            self._id,
            incarnation,
            seen,
            self.load,
            self.guests.ask(self._number),
            self._number,
            self.interval_us // 1_000,
            self._checksum,
            self.clients,
            self._recruited,
            self._refuses,
        )

    def look(self, now_us: int) -> list[Effect]:
        """Whether the leader may have given this broker up."""
        if self._hears_us is None or now_us - self._hears_us <= self._suspect_after_us:
            return []
        if self._told and self._heard_us is not None and now_us - self._heard_us > self._suspect_after_us:
            self._told = False  # the leader that said so is silent as well
            return [Orphaned(told=False)]
        return self._orphan(told=False)

    # ── the leader ──────────────────────────────────────────────────────────────────────────────────────────

    def heard(self, now_us: int) -> None:
        """A leader said something."""
        self._heard_us = now_us

    def is_led(self, now_us: int) -> bool:
        """Whether a leader has said something lately."""
        believed_us = BEATS * max(self.interval_us, ANSWERS_US)
        return self._heard_us is not None and now_us - self._heard_us <= believed_us

    def is_doubtful(self, now_us: int) -> bool:
        """Whether a leader may have given this broker up, since it answered a beat."""
        return self._hears_us is not None and now_us - self._hears_us > self._suspect_least_us

    def answered(self, pulse: Pulse, now_us: int) -> list[Effect]:
        """The leader's answer to a beat of this incarnation."""
        effects = self._adopt(pulse.heard, now_us)
        if pulse.refuges is not None:
            if set(pulse.refuges) != set(self._refuges):
                effects.append(DestinationsChanged())
            self._refuges, self._checksum = pulse.refuges, refuge.checksum(pulse.refuges)
        if pulse.homes is not None:
            effects += [
                SendHome(client=client, server_reference=reference)
                for client, reference in self.guests.answered(pulse.heard, dict(pulse.homes))
            ]
        if pulse.heard and (pulse.moves is not None or self._moving):
            self._moving = pulse.moves is not None
            self._recruited = pulse.moves is not None and pulse.moves.recruits
            effects.append(ClientsToMove(moves=pulse.moves))
        return effects

    def given_up(self) -> list[Effect]:
        """The leader says that this incarnation is over, and whatever it answered before."""
        self._unanswered.clear()
        return self._orphan(told=True)

    def _orphan(self, *, told: bool) -> list[Effect]:
        if self.orphaned:
            return []
        self.orphaned, self._told = True, told
        return [Orphaned(told=told)]

    def _adopt(self, number: int, now_us: int) -> list[Effect]:
        if not self._unanswered or number < self._unanswered[0][0]:
            return []
        sent_us = now_us
        while self._unanswered and self._unanswered[0][0] <= number:
            _, sent_us = self._unanswered.popleft()
        first, self._hears_us = self._hears_us is None, sent_us
        if not (self.orphaned or first) or now_us - sent_us > self._suspect_after_us:
            return []
        self.orphaned = self._told = False
        return [Adopted()]

    # ── where else clients can go ───────────────────────────────────────────────────────────────────────────

    def refuges(self, now_us: int) -> tuple[BrokerInfo, ...]:
        """Brokers that have room for our clients, best first; none if the leader has not been heard lately."""
        return self._refuges if self.is_led(now_us) else ()
