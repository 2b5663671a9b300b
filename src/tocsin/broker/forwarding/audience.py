"""The recipients of a topic's messages, as the shell sees them: grouped by the same bytes.

The forwarding table says who they are (``core.forwarding.table``), and keeps what is found here as long as that is
true.
"""

from __future__ import annotations

from typing import Final, final

from tocsin.broker.client import Client
from tocsin.broker.forwarding.fanout import OutletSet
from tocsin.core.forwarding.table import Audience, Fanout
from tocsin.wire.connect import V5, V311, Version


@final
class View:
    """An audience, divided by the version in which its members are spoken to."""

    __slots__ = ("aliased", "groups")

    def __init__(self, audience: Audience[Client]) -> None:
        self.aliased = [target.outlet for target in audience.targets if target.takes_aliases]
        self.groups: list[
            tuple[Version, OutletSet, int]
        ] = []  # and the largest frame that all of a group take
        for version in (V5, V311):
            targets = (t for t in audience.targets if t.version == version and not t.takes_aliases)
            members = [target.outlet for target in targets]
            if members:
                group = members[0].group if len(members) == 1 else OutletSet(*members)
                self.groups.append((version, group, min(each.send_max_bytes for each in members)))


def view_of(audience: Audience[Client]) -> View:
    view = audience.view
    if type(view) is View:
        return view
    audience.view = fresh = View(audience)
    return fresh


_NOBODY: Final = OutletSet()


@final
class Only:
    """The single group that gets a topic's messages in the same bytes, if nobody else gets them; otherwise no run is
    small enough.
    """

    __slots__ = ("group", "send_max_bytes", "version")

    def __init__(self, fanout: Fanout[Client]) -> None:
        view = view_of(fanout.audience)
        others = fanout.identified or fanout.no_local or fanout.shares or fanout.origin or view.aliased
        self.version: Version = V5
        self.group, self.send_max_bytes = _NOBODY, -1
        if len(view.groups) == 1 and not others:
            self.version, self.group, self.send_max_bytes = view.groups[0]
