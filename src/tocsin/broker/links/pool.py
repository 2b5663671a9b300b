"""The links of a broker: one to each peer that its routes lead to, and for a while longer to those that they led to.

Routes come and go with streams and subscribers. A link that is dialled for each of them would make the first message
wait, and be closed again a moment later; so it is kept for LINGER_S after its last route is gone.

To some peers no route leads: their links only show when they end (*quiet*), and ask them for signs of life more seldom.
When a route leads there as well, another link is made in its place.

A link that is being made for the first time is **fresh**: messages wait for it. Declarations of streams wait as well
(``when_settled``), so that they do not overtake messages: a stream would have left a query before its last messages
arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from tocsin.broker.links.link import Link, LinkWatcher
from tocsin.broker.links.measured import LinkDelays
from tocsin.broker.links.turned import OutwardCall
from tocsin.core.coordination.participant.signals import LinksSeen
from tocsin.core.links.distances import Delays
from tocsin.core.links.signals import Ending
from tocsin.model.network import BrokerInfo
from tocsin.runtime.machines.clock import now_us

LINGER_S: Final = 60.0
FRESH_S: Final = 1.0  # a link that takes longer to be made counts as failed
GATHER_S: Final = 0.005  # links that end together are told of together
MEASURE_S: Final = 0.15  # for peers to answer who are asked how far they are; less than a leader waits

Given = TypeVar("Given")


class LinkPool:
    """Keeps one link to each peer that routes lead to."""

    def __init__(
        self,
        make_link: Callable[[BrokerInfo, bool, LinkWatcher], Link],
        ended: Callable[[Mapping[str, Ending]], None] = lambda ended: None,
        known: Callable[[str, bool], None] = lambda peer, up: None,
        make_call: Callable[[BrokerInfo], OutwardCall | None] = lambda peer: None,
    ) -> None:
        """``make_link`` is told whether the link is quiet, and whom it tells how it is; ``ended`` of the peers that
        have ended their links, or refuse them; ``known`` of each peer whether its link is up, whenever that is
        seen. ``make_call`` makes what keeps a connection at a peer that cannot dial this broker; None for others."""
        self.links: dict[str, Link] = {}  # by the peer's id
        self.delays = Delays()  # of those that are up
        self.measured = LinkDelays()  # the same as distributions
        self._make_link = make_link
        self._make_call = make_call
        self._calls: dict[str, OutwardCall] = {}
        self._measuring: asyncio.TimerHandle | None = None
        self._leaving: dict[str, asyncio.TimerHandle] = {}  # peers to which no route leads any more
        self._fresh: dict[str, asyncio.TimerHandle] = {}  # links that are being made, until when
        self._in_turn: list[Callable[[], None]] = []  # what waits for them
        self._tell_ended = ended
        self._tell_known = known
        self._late = 0  # of links that are gone
        self._ended: dict[str, Ending] = {}  # peers that have ended their links in the last moment

    def want(self, peers: Iterable[BrokerInfo], quiet: Collection[str] = ()) -> None:
        """Routes lead to these, and to nobody else; to the quiet ones none does."""
        wanted = {peer.id: peer for peer in peers}
        for peer, info in wanted.items():
            if peer in self._leaving:
                self._leaving.pop(peer).cancel()
            if peer in self._calls:
                self._calls[peer].hurry()  # it may be back, and have something for this broker
            link = self.links.get(peer)
            if link is not None and (
                link.info != info or link.quiet > (peer in quiet)
            ):  # it moved; a route came
                self._end(link)
                link = None
            if link is None:
                self.links[peer] = self._make_link(info, peer in quiet, self)
                self._await(peer)
                self.links[peer].open()
                self._keep_call(info)
        for peer in self.links:
            if peer not in wanted and peer not in self._leaving:
                later = asyncio.get_running_loop().call_later(LINGER_S, self._leave, peer)
                self._leaving[peer] = later

    def _leave(self, peer: str) -> None:
        del self._leaving[peer]
        self.delays.lost(peer)
        self.measured.forget(peer)
        self._end(self.links.pop(peer))
        self.link_known(peer)

    def hurry(self, certificate_name: str) -> None:
        """A peer that cannot be dialled has made a connection: a link that waits for it may use it."""
        for link in self.links.values():
            if link.info.certificate_name == certificate_name:
                link.hurry()

    def dial_again(self) -> None:
        """Have all peers show their certificates again: what one has shown is believed while its link lasts."""
        for link in self.links.values():
            link.dial_again()

    def _keep_call(self, peer: BrokerInfo) -> None:
        call = self._make_call(peer)
        if call is not None:
            self._calls[peer.id] = call
            call.open()

    def _end(self, link: Link) -> None:
        link.close()
        if (call := self._calls.pop(link.info.id, None)) is not None:
            call.close()
        self._late += link.late

    @property
    def late(self) -> int:
        """Messages that were dropped because they had waited too long for a link."""
        return self._late + sum(link.late for link in self.links.values())

    def when_settled(self, act: Callable[[Given], None], given: Given) -> None:
        """Do something with what is given once no link is fresh, in turn with what else waits for that."""
        if self._fresh or self._in_turn:
            self._in_turn.append(partial(act, given))
        else:
            act(given)

    def _await(self, peer: str) -> None:
        if peer in self._fresh:
            self._fresh[peer].cancel()
        self._fresh[peer] = asyncio.get_running_loop().call_later(FRESH_S, self.link_known, peer)

    def link_known(self, peer: str) -> None:
        """A link is not fresh any more: it is up, or it is known that it is not."""
        timer = self._fresh.pop(peer, None)
        if timer is not None:
            timer.cancel()
            self._settle()
        if (link := self.links.get(peer)) is not None:
            self._tell_known(peer, link.up)

    def _settle(self) -> None:
        while self._in_turn and not self._fresh:
            self._in_turn.pop(0)()

    def link_ended(self, peer: str, ending: Ending) -> None:
        """A peer has ended its link: told together with those that end in the same moment."""
        if not self._ended:
            asyncio.get_running_loop().call_later(GATHER_S, self._say_ended)
        self._ended[peer] = ending

    def link_measured(self, peer: str, round_trip_us: int) -> None:
        self.delays.measured(peer, round_trip_us)
        self.measured.measured(peer, round_trip_us, now_us())

    def _say_ended(self) -> None:
        ended, self._ended = self._ended, {}
        self._tell_ended(ended)

    def failing(self) -> list[Link]:
        """The links that are needed, and cannot be made."""
        return [
            link
            for peer, link in self.links.items()
            if peer not in self._leaving and not link.up and link.tried
        ]

    def seen(self, cause: str, *, asked: bool = False) -> LinksSeen:
        """How they are."""
        for peer, link in self.links.items():
            if not link.up:
                self.delays.lost(peer)
        down = tuple(peer for peer, link in self.links.items() if not link.up and peer not in self._leaving)
        delays = {peer: us for peer, us in self.delays.all().items() if peer in self.links}
        return LinksSeen(cause=cause, down=down, delays=delays, asked=asked)

    def measure(self, then: Callable[[], None]) -> None:
        """Ask each peer for a sign of life, and call this when they had time to give it."""
        for link in self.links.values():
            link.ping()
        if self._measuring is not None:
            self._measuring.cancel()
        self._measuring = asyncio.get_running_loop().call_later(MEASURE_S, then)

    def close(self) -> None:
        for timer in self._leaving.values():
            timer.cancel()
        self._leaving.clear()
        if self._measuring is not None:
            self._measuring.cancel()
        for timer in self._fresh.values():
            timer.cancel()
        self._fresh.clear()
        self._settle()
        for link in self.links.values():
            self._end(link)
        self.links.clear()
