"""Cut links between brokers and the detours around them, the same on every replica.

A **detour** is a link whose messages go over relays: routes stay as they are (``core.forwarding.routes``), and so does
what they promise. A broker sends the messages for a cut link to the first relay, with the names of the brokers on the
path; each passes them to the next, and only the last one looks into them.

Invariants:

- a row is of a broker that is there, to another that is there, over brokers that are there;
- a row without relays says that the link is cut and no way around is known, or that it leads to a hub that is left out
  and nobody knows whether it works: the broker goes on trying.

The leader decides (``rerouting``). A broker's end changes the detours in the same batch: its own rows end, and those
that lead to it; those that lead over it wait for the leader's next command.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from tocsin.model.network import BrokerInfo
from tocsin.wire.internal.notices import Bypass, Item

Around = Mapping[str, tuple[str, ...]]  # peer → the relays on the way to it


class Detours:
    """The links that are cut and the detours around them, in the replicated state."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, tuple[str, ...]]] = {}  # broker → its links that are cut; never empty
        self._concerned: dict[str, None] = {}  # brokers for which something changed

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def around(self, broker: str) -> Around:
        return self.rows.get(broker, {})

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def set(self, broker: str, around: Around, members: Mapping[str, object]) -> None:
        """All rows of a broker. Relays that are gone by now are no way."""
        before = self.rows.pop(broker, {})
        after = {
            peer: relays if all(each in members and each not in (broker, peer) for each in relays) else ()
            for peer, relays in sorted(around.items())
            if peer in members and peer != broker
        }
        if broker in members and after:
            self.rows[broker] = after
        if before != after:
            for peer in {*before, *after}:
                if before.get(peer) != after.get(peer):
                    self._concern(broker, peer, before.get(peer, ()))
                    self._concern(broker, peer, after.get(peer, ()))

    def joined(self, broker: str) -> None:
        """A broker has come, or come back, perhaps to another address."""
        for source, rows in self.rows.items():
            for peer, relays in rows.items():
                if broker in (peer, *relays):
                    self._concern(source, peer, relays)

    def lost(self, broker: str) -> None:
        for peer, relays in self.rows.pop(broker, {}).items():
            self._concern(broker, peer, relays)
        for source, rows in list(self.rows.items()):
            for peer, relays in list(rows.items()):
                if peer == broker:
                    del rows[peer]
                elif broker in relays:
                    rows[peer] = ()
                else:
                    continue
                self._concern(source, peer, relays)
            if not rows:
                del self.rows[source]

    def _concern(self, source: str, peer: str, relays: tuple[str, ...]) -> None:
        """The broker, and those that carry for it."""
        self._concerned.update(dict.fromkeys((source, *relays)))

    @property
    def changed(self) -> bool:
        return bool(self._concerned)

    # ── what brokers are told ───────────────────────────────────────────────────────────────────────────────

    def settle(self, infos: Mapping[str, BrokerInfo]) -> dict[str, list[Item]]:
        """Broker → what to tell it of what changed since the last call; ``infos`` are those of the members."""
        concerned, self._concerned = self._concerned, {}
        onward = self._onward()
        return {
            broker: [self._item(broker, onward.get(broker, ()), infos)]
            for broker in sorted(concerned)
            if broker in infos
        }

    def everything(self, broker: str, infos: Mapping[str, BrokerInfo]) -> Iterator[Item]:
        """All that a member has to know, if that is anything."""
        onward = self._onward().get(broker, ())
        if broker in self.rows or onward:
            yield self._item(broker, onward, infos)

    def _onward(self) -> dict[str, Iterable[str]]:
        """Relay → the brokers to which it passes on."""
        found: dict[str, dict[str, None]] = {}
        for rows in self.rows.values():
            for peer, relays in rows.items():
                for relay, following in pairwise((*relays, peer)):
                    found.setdefault(relay, {})[following] = None
        return {relay: sorted(each) for relay, each in found.items()}

    def _item(self, broker: str, onward: Iterable[str], infos: Mapping[str, BrokerInfo]) -> Bypass:
        around = self.around(broker)
        needed = {*around, *onward, *(relays[0] for relays in around.values() if relays)}
        return Bypass(
            around=tuple(around.items()),
            onward=tuple(onward),
            peers=tuple(infos[each] for each in sorted(needed)),
        )
