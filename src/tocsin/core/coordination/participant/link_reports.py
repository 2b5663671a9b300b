"""A broker's reports about its links to the leader: which are cut, and how far its peers are.

A link is **cut** if there has been no connection for CUT_US though something is to be sent over it, and stays so until
there was one for STEADY_US: a link that comes and goes is worse than none. CUT_US is longer than a broker takes to
restart, or a leader to notice that one is gone; and less than messages wait for a link.

All of it is told in one message (``wire.internal.control.Links``):

- at once, if a link was cut or is back, if somebody else leads, and if the leader asks;
- otherwise not more often than every QUIET_US, if delays changed much; or while the leader's notices say otherwise
  than what is seen here, for a message may be lost;
- every KEEP_US in any case;
- at once, if a peer has closed a link without a word, and if it refuses another one within RECENT_US: the peer may be
  gone (``core.survival.detection``).
"""

from __future__ import annotations

from typing import Final

from tocsin.core.coordination.participant.signals import LinksEnded, LinksSeen
from tocsin.core.links.distances import differ_much
from tocsin.core.links.path import STEADY_US
from tocsin.wire.internal.control import CUTS_MAX, PEERS_MAX, Links
from tocsin.wire.internal.notices import Bypass

CUT_US: Final = 2_500_000
QUIET_US: Final = 5_000_000
KEEP_US: Final = 30_000_000
RECENT_US: Final = 1_000_000


class Linkage:
    """Reports one broker's broken links and changed delays to the leader."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._down_us: dict[str, int] = {}  # peers without a connection → since when
        self._cut: dict[str, int | None] = {}  # links that are cut → since when there is one again
        self._delays: dict[str, int] = {}
        self._closed_us: dict[str, int] = {}  # peers that closed a link → when
        self._told: Links | None = None  # None: the leader knows nothing
        self._epoch = 0  # of that leader
        self._told_us = 0

    @property
    def cut(self) -> tuple[str, ...]:
        return tuple(sorted(self._cut)[:CUTS_MAX])

    def see(self, seen: LinksSeen, incarnation: int, epoch: int, bypass: Bypass, now_us: int) -> Links | None:
        """How links are now; what to tell, if there is something to tell. ``bypass`` is what the leader has said, and
        ``epoch`` who that is."""
        if epoch != self._epoch:
            self._epoch, self._told = epoch, None
        self._down_us = {peer: self._down_us.get(peer, now_us) for peer in seen.down}
        for peer, since_us in self._down_us.items():
            if now_us - since_us >= CUT_US or peer in self._cut:
                self._cut[peer] = None
        for peer, back_us in list(self._cut.items()):
            if peer in self._down_us:
                continue
            if back_us is None:
                self._cut[peer] = now_us
            elif now_us - back_us >= STEADY_US:
                del self._cut[peer]
        self._delays = {
            peer: us for peer, us in list(seen.delays.items())[:PEERS_MAX] if peer not in self._cut
        }
        message = Links(self._broker, incarnation, self.cut, tuple(sorted(self._delays.items())))
        if not incarnation or not (seen.asked or self._is_due(message, bypass, now_us)):
            return None
        self._told, self._told_us = message, now_us
        return message

    def ended(self, event: LinksEnded, incarnation: int, now_us: int) -> Links | None:
        """Peers have closed links, or refuse them; what to tell."""
        self._closed_us = {
            peer: at_us for peer, at_us in self._closed_us.items() if now_us - at_us <= RECENT_US
        }
        refused = tuple(peer for peer in event.refused if peer in self._closed_us)[:CUTS_MAX]
        closed = event.closed[:CUTS_MAX]
        self._closed_us |= dict.fromkeys(closed, now_us)
        if not incarnation or not (closed or refused):
            return None
        delays = tuple(sorted(self._delays.items()))
        return Links(self._broker, incarnation, self.cut, delays, closed, refused)

    def _is_due(self, message: Links, bypass: Bypass, now_us: int) -> bool:
        told = self._told
        if told is None or (told.incarnation, told.cut) != (message.incarnation, message.cut):
            return True
        waited_us = now_us - self._told_us
        if waited_us >= KEEP_US:
            return True
        doubtful = {peer for peer, _ in bypass.around} != set(message.cut)
        return waited_us >= QUIET_US and (doubtful or differ_much(dict(told.delays), self._delays))
