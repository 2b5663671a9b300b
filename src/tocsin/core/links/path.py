"""The path of messages to one peer: straight over the link, over relays, or waiting.

    up, and no detour, or up for STEADY_US ──► straight
    else a detour is known                 ──► over its relays
    else                                   ──► wait, until one of these is so

A message takes one way, so that none comes twice. Two paths are not equally long, so that a message on the new path
could overtake one on the old: for SETTLE_US after the last message on a path, messages wait before they take another.
That is longer than a way over relays takes where all is well; it is no proof, and QoS 0 promises none.

A link that comes back and breaks again loses the messages that were written to it. So the detour is used until the link
was up for STEADY_US.
"""

from __future__ import annotations

from typing import Final

SETTLE_US: Final = 500_000
STEADY_US: Final = 3_000_000

Relays = tuple[str, ...]
STRAIGHT: Final[Relays] = ()  # the way over nobody


class LinkPath:
    """Decides which way messages to one peer take."""

    def __init__(self) -> None:
        self.detour: Relays = ()  # () if none is known
        self._up_us: int | None = None  # since when the link is up
        self._way: Relays | None = None  # of the last message
        self._sent_us = 0  # when that was

    def link_up(self, now_us: int) -> None:
        self._up_us = now_us

    def link_down(self) -> None:
        self._up_us = None

    @property
    def reachable(self) -> bool:
        """Whether there is a way at all."""
        return self._up_us is not None or bool(self.detour)

    def way(self, now_us: int) -> Relays | None:
        """The way that a message takes now; None: it waits."""
        wanted = self._wanted(now_us)
        if wanted is None or (wanted != self._way and now_us < self._settled_us()):
            return None
        return wanted

    def sent(self, way: Relays, now_us: int) -> None:
        """A message has taken this way."""
        self._way, self._sent_us = way, now_us

    def look_again_us(self, now_us: int) -> int | None:
        """When messages that wait can go, if nothing else happens before; None: not by waiting alone."""
        if self._wanted(now_us) is None:
            return None
        return max(now_us, self._settled_us())

    def _wanted(self, now_us: int) -> Relays | None:
        if self._up_us is not None and (not self.detour or now_us - self._up_us >= STEADY_US):
            return STRAIGHT
        return self.detour or None

    def _settled_us(self) -> int:
        return 0 if self._way is None else self._sent_us + SETTLE_US
