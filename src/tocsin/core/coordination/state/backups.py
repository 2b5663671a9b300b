"""Which brokers back which, and which stand in for lost ones: the part of the state that outlives brokers.

    planned ──broker lost──► its place is taken (by its local backup, else its remote one) ──it is back──► planned
                                    └── a standby is promoted: it comes back as that broker ──┘

A **place** is a lost broker and its stand-in, with an epoch that grows with every such change in the network: between
two that claim a place the larger epoch wins. If the stand-in is lost too, the other backup of the same place replaces
it: it has a copy of the lost broker's clients.

A **standby** that is promoted rejoins under the name of the lost broker, with its own addresses: to all
others that broker is back, and they are told where, since clients know the old address. Should the old one come after
all, it joins with a larger incarnation, and the standby, which hears that its own is over, is a standby again.

Changes become items for brokers: their backups and the brokers that they back to those concerned, takeovers to all,
since clients may connect anywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.internal.notices import Backed, Item, Moved, Promote, TakeOver

WATCHED_MAX: Final = 64  # brokers that one backup keeps links to
PLACES_MAX: Final = 4_096  # brokers that are gone whose places are remembered; the oldest is forgotten


class Backups(msgspec.Struct, frozen=True, array_like=True):
    """The plan for one broker: names, None where there is nobody."""

    local: str | None = None
    remote: str | None = None


class Vacancy(msgspec.Struct, frozen=True, array_like=True):
    """A lost broker, and the broker that stands in for it; None if there is none."""

    by: str | None
    epoch: int
    info: BrokerInfo  # of the broker that is gone


NONE: Final = Backups()


class Survival:
    """Which brokers back which, and which stand in for lost ones, in the replicated state.

    ``members`` are the brokers that are there, by name, as the state keeps them.
    """

    def __init__(self) -> None:
        self._plan: dict[str, Backups] = {}
        # Broker → those whose backup it is, by the plan; None: to be worked out.
        self._backing: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] | None = None
        self.vacancies: dict[str, Vacancy] = {}  # by the broker that is gone, the oldest first
        self.promotions: dict[str, str] = {}  # standby → the broker that it is to become
        self.epoch = 0
        self._moved: dict[str, None] = {}  # places that changed
        self._backs: dict[str, None] = {}  # brokers whose backups, or whose primaries, changed
        self._promoted: dict[str, None] = {}  # standbys that are to be told

    @property
    def plan(self) -> Mapping[str, Backups]:
        """The backups of each broker, also of those that are gone."""
        return self._plan

    def restore(self, broker: str, backups: Backups) -> None:
        """A row of the plan, from a snapshot."""
        self._plan[broker] = backups
        self._backing = None

    def _backs_whom(self, broker: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The brokers whose local backup a broker is, and those whose remote one."""
        if self._backing is None:
            backing: dict[str, tuple[list[str], list[str]]] = {}
            for each in sorted(self._plan):
                for place, backup in enumerate((self._plan[each].local, self._plan[each].remote)):
                    if backup is not None:
                        backing.setdefault(backup, ([], []))[place].append(each)
            self._backing = {name: (tuple(near), tuple(far)) for name, (near, far) in backing.items()}
        return self._backing.get(broker, ((), ()))

    def _backed_by(self, broker: str) -> Iterable[str]:
        """The brokers that this one backs."""
        locally, remotely = self._backs_whom(broker)
        return (*locally, *remotely)

    def backs_any(self, broker: str) -> bool:
        """Whether the plan names it as a backup."""
        return any(self._backs_whom(broker))

    def stands_in(self, broker: str) -> bool:
        """Whether it stands in for a broker that is gone, or may have to: it has a copy of it."""
        if any(held.by == broker for held in self.vacancies.values()):
            return True
        return any(each in self.vacancies for each in self._backed_by(broker))

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def planned(self, plan: Mapping[str, Backups]) -> None:
        """Apply a plan of backups. For a lost broker the old plan counts while its place does."""
        kept = {broker: self.plan[broker] for broker in self.vacancies if broker in self.plan}
        fresh = {broker: backups for broker, backups in plan.items() if broker not in self.vacancies} | kept
        for broker in {*self.plan, *fresh}:
            before, after = self.plan.get(broker, NONE), fresh.get(broker, NONE)
            if before != after:
                self._concern(broker, before)
                self._concern(broker, after)
        self._plan, self._backing = fresh, None

    def promoted(self, broker: str, standby: str) -> None:
        """A standby is to take the place of a broker that is gone."""
        if broker in self.vacancies and standby not in self.promotions:
            self._end_promotion(broker)
            self.promotions[standby] = broker
            self._promoted[standby] = None

    def _end_promotion(self, broker: str) -> None:
        for standby in [each for each, place in self.promotions.items() if place == broker]:
            del self.promotions[standby]

    def joined(self, broker: str) -> None:
        """A broker has come, or come back."""
        self._end_promotion(broker)
        if self.vacancies.pop(broker, None) is not None:
            self._moved[broker] = None
        self._concern(broker, self.plan.get(broker, NONE))
        for other in self._backed_by(broker):
            self._concern(other, self.plan[other])

    def readdressed(self, before: BrokerInfo, after: BrokerInfo) -> None:
        """A broker that is there is reached elsewhere. All are to know where it serves the clients of others, and its
        own if a standby has its name, or had it.
        """
        self._moved.update((place, None) for place, held in self.vacancies.items() if held.by == after.id)
        if before.certified or after.certified:
            self._moved[after.id] = None

    def lost(self, info: BrokerInfo, members: Collection[str]) -> None:
        """A broker is gone; ``members`` are the others."""
        broker = info.id
        self.promotions.pop(broker, None)
        if able(info):
            self._take(info, members)
        self._concern(broker, self.plan.get(broker, NONE))  # nobody needs a link to it any more
        for held in tuple(self.vacancies.values()):
            if held.by == broker:
                self._take(held.info, members)
        for other in self._backed_by(broker):
            self._concern(other, self.plan[other])
        while len(self.vacancies) > PLACES_MAX:
            oldest = next(iter(self.vacancies))
            del self.vacancies[oldest]
            self._plan.pop(oldest, None)
            self._backing = None
            self._end_promotion(oldest)

    def _take(self, info: BrokerInfo, members: Collection[str]) -> None:
        backups = self.plan.get(info.id, NONE)
        by = next((each for each in (backups.local, backups.remote) if each in members), None)
        self.epoch += 1
        self.vacancies[info.id] = Vacancy(by, self.epoch, info)
        self._moved[info.id] = None

    def _concern(self, broker: str, backups: Backups) -> None:
        for each in (broker, backups.local, backups.remote):
            if each is not None:
                self._backs[each] = None

    @property
    def changed(self) -> bool:
        """Whether ``settle`` has something to tell."""
        return bool(self._moved or self._backs or self._promoted)

    # ── what brokers are told ───────────────────────────────────────────────────────────────────────────────

    def settle(self, infos: Mapping[str, BrokerInfo]) -> Iterator[tuple[Collection[str], Sequence[Item]]]:
        """Brokers, and what to tell them all of what changed since the last call; ``infos`` are those of the
        members."""
        backs, moved, promoted = self._backs, self._moved, self._promoted
        self._backs, self._moved, self._promoted = {}, {}, {}
        for broker in backs:
            if broker in infos:
                yield (broker,), (self._backed(broker, infos),)
        if moved:
            yield infos.keys(), [self._moved_item(broker, infos) for broker in moved]
        for broker in moved:
            place = self.vacancies.get(broker)
            if place is not None and place.by in infos:
                assert place.by is not None
                yield (place.by,), (TakeOver(broker, place.epoch),)
        for standby in promoted:
            if standby in infos and standby in self.promotions:
                yield (standby,), (self._promote(standby),)

    def _promote(self, standby: str) -> Promote:
        return Promote(self.vacancies[self.promotions[standby]].info)

    def everything(self, broker: str, infos: Mapping[str, BrokerInfo]) -> Iterable[Item]:
        """All that a member has to know."""
        yield self._backed(broker, infos)
        for place, held in self.vacancies.items():
            yield self._moved_item(place, infos)
            if held.by == broker:
                yield TakeOver(place, held.epoch)
        for replaced, info in infos.items():
            if info.certified:
                yield self._moved_item(replaced, infos)
        if broker in self.promotions:
            yield self._promote(broker)

    def _backed(self, broker: str, infos: Mapping[str, BrokerInfo]) -> Backed:
        backups = self.plan.get(broker, NONE)
        locally, remotely = self._backs_whom(broker)
        watched = sorted(each for each in {*locally, *remotely} if each in infos)
        return Backed(
            local=infos.get(backups.local or ""),
            remote=infos.get(backups.remote or ""),
            locally=locally,
            remotely=remotely,
            watched=tuple(infos[each] for each in watched[:WATCHED_MAX]),
        )

    def _moved_item(self, broker: str, infos: Mapping[str, BrokerInfo]) -> Moved:
        place = self.vacancies.get(broker)
        if place is None:
            info = infos.get(broker)
            return Moved(broker, info if info is not None and info.certified else None, self.epoch)
        return Moved(broker, infos.get(place.by or ""), place.epoch, gone=True)


def able(info: BrokerInfo) -> bool:
    """Whether a broker can back others: it has to serve clients."""
    return info.role != Role.STANDBY and bool(info.entrances)
