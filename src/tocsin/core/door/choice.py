"""Which broker a client belongs to, as one coordinator knows the network.

    home or last broker lives          there
    … is lost                          its stand-in, then its planned local backup, then the remote one
    none is known, or none is left     a broker by nearness, similarity of subscriptions and load

A client's **home** is what it states. Its **last** broker is where it published from, as the command log has it, or
where this door sent it before. Of new clients the nearest cluster is served first; in it come brokers with room before
crowded ones, those that hold most of the filters the client names, edge brokers before routing ones, then the emptiest.
Brokers that are equally good take turns.

Invariants: a broker in the list lives by this coordinator's knowledge, serves clients, is no standby, and is not full;
and no broker is in the list twice.

Costs: a client whose home lives costs a look-up. Brokers are ranked once for each near cluster, and once for each
client that names filters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tocsin.core.coordination.state.backups import Backups, Vacancy
from tocsin.core.door.callers import Caller
from tocsin.core.survival.refuges import FULL, ROOMY, STEP
from tocsin.model.network import BrokerInfo, Role, Scheme

NOBODY: Final = Backups()
_Rank = tuple[bool, bool, int, bool, int]


class Candidate(msgspec.Struct, frozen=True):
    """A broker that would serve a client, and why it."""

    broker: BrokerInfo
    reason: str

    def address(self, scheme: Scheme) -> str | None:
        """Where clients of a scheme find it."""
        return next((each.address for each in self.broker.entrances if each.scheme == scheme), None)


class Directory:
    """The network as a door sees it: a picture that is made anew when something changed.

    ``living`` are the members, ``loads`` has thousandths, ``filters`` what each broker's clients subscribe to,
    ``published_at`` the broker from which a client published last.
    """

    def __init__(
        self,
        living: Iterable[BrokerInfo],
        *,
        plan: Mapping[str, Backups],
        vacancies: Mapping[str, Vacancy],
        loads: Mapping[str, int],
        filters: Callable[[str], Collection[str]] = lambda broker: (),
        published_at: Callable[[str], str | None] = lambda client: None,
    ) -> None:
        self.living = {each.id: each for each in living}
        self.vacancies = vacancies
        self.loads = loads
        self._plan = plan
        self._filters = filters
        self._published_at = published_at
        self.able = {
            name: each
            for name, each in self.living.items()
            if each.entrances and each.role != Role.STANDBY and loads.get(name, 0) < FULL
        }
        known = (*(place.info for place in vacancies.values()), *self.living.values())
        self._by_address = {entrance.address: each.id for each in known for entrance in each.entrances}
        self._ranked: dict[str, list[tuple[_Rank, BrokerInfo]]] = {}  # by the cluster that is near

    def is_there(self, broker: BrokerInfo) -> bool:
        """Whether a broker is still there, and where it was: not lost, not moved, and no standby in its place."""
        now = self.living.get(broker.id)
        return now is not None and (now.host, now.port) == (broker.host, broker.port)

    def broker_of(self, home: str) -> str | None:
        """The broker, there or lost, that a home means: its id or one of its addresses."""
        if home in self.living or home in self.vacancies:
            return home
        return self._by_address.get(home)

    def order(self, caller: Caller, last: str | None, near: str, turn: int) -> list[Candidate]:
        """Every broker that would serve a client, best first.

        ``last`` is where the door sent it before, ``near`` the cluster that counts if the client names none, ``turn``
        grows with every new client.
        """
        found: dict[str, Candidate] = {}
        for each in self._candidates(caller, last, near, turn):
            found.setdefault(each.broker.id, each)
        return list(found.values())

    def _candidates(self, caller: Caller, last: str | None, near: str, turn: int) -> Iterator[Candidate]:
        home = self.broker_of(caller.home) if caller.home else None
        if home is not None:
            yield from self._of(home, "the client's home")
        else:
            before = (self._published_at(caller.client) if caller.client else None) or last
            if before is not None:
                yield from self._of(before, "the client's last broker")
        yield from self._assigned(caller, near, turn)

    def _of(self, broker: str, what: str) -> Iterator[Candidate]:
        """A broker, or the brokers that have what it had."""
        place, backups = self.vacancies.get(broker), self._plan.get(broker, NOBODY)
        state = "lost" if broker not in self.living else "full" if broker not in self.able else "there"
        named = (
            (broker, f"it is {what}"),
            (place.by if place is not None else None, f"it stands in for {what} {broker}, which is {state}"),
            (backups.local, f"it is the local backup of {what} {broker}, which is {state}"),
            (backups.remote, f"it is the remote backup of {what} {broker}, which is {state}"),
        )
        for name, reason in named:
            if name is not None and name in self.able:
                yield Candidate(self.able[name], reason)

    def _assigned(self, caller: Caller, near: str, turn: int) -> Iterator[Candidate]:
        cluster = caller.near or near
        ranked = self._rank(cluster, caller.wants)
        first = [info for rank, info in ranked if rank == ranked[0][0]]
        turned = turn % len(first) if first else 0
        shared = -ranked[0][0][2] if ranked else 0
        rest = [info for _, info in ranked[len(first) :]]
        for info in (*first[turned:], *first[:turned], *rest):
            yield Candidate(info, _why(info, cluster, shared if info in first else 0, len(caller.wants)))

    def _rank(self, near: str, wants: tuple[str, ...]) -> list[tuple[_Rank, BrokerInfo]]:
        ranked = None if wants else self._ranked.get(near)
        if ranked is None:
            ranked = [
                (self._rank_of(each, near, self._shared(each.id, wants)), each) for each in self.able.values()
            ]
            ranked.sort(key=lambda each: (each[0], each[1].id))
            if not wants and (near == "" or any(each.cluster == near for each in self.able.values())):
                self._ranked[near] = ranked  # of clusters that there are: others would fill the memory
        return ranked

    def _shared(self, broker: str, wants: tuple[str, ...]) -> int:
        held = self._filters(broker) if wants else ()
        return sum(each in held for each in wants)

    def _rank_of(self, info: BrokerInfo, near: str, shared: int) -> _Rank:
        load = self.loads.get(info.id, 0)
        far = bool(near) and info.cluster != near
        return far, load >= ROOMY, -shared, info.role != Role.EDGE, load // STEP


def _why(info: BrokerInfo, near: str, shared: int, wants: int) -> str:
    where = f"cluster {near}" if near and info.cluster == near else f"cluster {info.cluster}, another one"
    if not near:
        where = "the network"
    if shared:
        return f"its clients ask for {shared} of the {wants} filters that the client names"
    return f"it has room, in {where}"
