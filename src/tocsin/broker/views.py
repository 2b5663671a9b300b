"""Those who get a topic's messages, as the shell sees them: who is spoken to in the same bytes.

The forwarding table says who they are (``core.forwarding``), and keeps what is found here as long as that is true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, final

from tocsin.broker.attendant import Attendant
from tocsin.broker.fanout import Group, Outlet
from tocsin.core.forwarding import Audience, Fanout
from tocsin.wire.codec import V5, V311, Version


class Subscriber(Outlet, Protocol):
    """A client's connection, as the exchange sees it."""

    @property
    def version(self) -> Version: ...

    @property
    def client_id(self) -> str: ...

    @property
    def user(self) -> str:
        """Whose it is; empty if it proved no name."""
        ...

    @property
    def takes_aliases(self) -> bool: ...

    @property
    def attendant(self) -> Attendant:
        """What takes messages above QoS 0 for it."""
        ...

    @property
    def full(self) -> bool:
        """Whether what is sent now would be dropped."""
        ...

    def may_receive(self, topic: str) -> bool: ...

    def when_level(self, act: Callable[[], None]) -> bool:
        """Whether it has got all messages of the log that there are; if not, ``act`` when it has."""
        ...


@final
class View:
    """An audience, divided by the version in which its members are spoken to."""

    __slots__ = ("aliased", "groups")

    def __init__(self, audience: Audience[Subscriber]) -> None:
        self.aliased = [target for target in audience.targets if target.takes_aliases]
        self.groups: list[tuple[Version, Group, int]] = []  # and the largest frame that all of a group take
        for version in (V5, V311):
            members = [t for t in audience.targets if t.version == version and not t.takes_aliases]
            if members:
                group = members[0].group if len(members) == 1 else Group(*members)
                self.groups.append((version, group, min(each.send_max_bytes for each in members)))


def view_of(audience: Audience[Subscriber]) -> View:
    view = audience.view
    if type(view) is View:
        return view
    audience.view = fresh = View(audience)
    return fresh


_NOBODY: Final = Group()


@final
class Only:
    """The one group that gets the messages of a topic, all of it the same bytes, if there is one and nobody else gets
    them; otherwise nothing is small enough for it."""

    __slots__ = ("group", "send_max_bytes", "version")

    def __init__(self, fanout: Fanout[Subscriber]) -> None:
        view = view_of(fanout.audience)
        others = fanout.identified or fanout.no_local or fanout.shares or fanout.origin or view.aliased
        self.version: Version = V5
        self.group, self.send_max_bytes = _NOBODY, -1
        if len(view.groups) == 1 and not others:
            self.version, self.group, self.send_max_bytes = view.groups[0]
