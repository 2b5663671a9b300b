"""The fates of killed brokers in a simulated network, by the log and by the members' notices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tocsin.core.coordination.participant.signals import BackupsKnown, StandDown, StandIn
from tocsin.core.coordination.state.backups import NONE, Backups
from tocsin.model.network import Address, BrokerInfo, Role
from tocsin.ports import Entry
from tocsin.sim.chance import MILLION
from tocsin.wire.internal.commands import Joined, Lost, Said, decode_batch
from tocsin_labs.landmark.simulated import PLACES, Network


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of one killed broker: virtual seconds from the kill, None if that did not happen."""

    broker: str
    serves: bool  # it is no standby: it has a place
    bereft: bool  # both of its backups were killed with it
    lost_s: float | None
    taken_over_s: float | None
    by: str | None
    replaced_s: float | None


def last(times: Iterable[float | None]) -> float | None:
    """None if one is missing, or there are none."""
    found = list(times)
    known = [each for each in found if each is not None]
    return max(known) if known and len(known) == len(found) else None


class Watch:
    """The log's entries and the members' notices, from a kill on."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._backups: dict[Address, BackupsKnown] = {}  # as each process was told last
        self._victims: dict[str, BrokerInfo] = {}
        self._bereft: set[str] = set()
        self._needs: dict[
            str, tuple[bool, bool]
        ] = {}  # who lost a backup → whether it had a local, a remote one
        self._killed_us = 0
        self._wrongly: set[str] = set()
        self._forget()
        network.told.append(self._told)
        network.world.observers.on_entry(PLACES.commands.name, self._look)
        network.world.observers.on_happening(self._on_happening)

    def _forget(self) -> None:
        self._lost: dict[str, int] = {}
        self._taken: dict[str, tuple[int, str]] = {}
        self._replaced: dict[str, int] = {}
        self._planned: dict[str, int] = {}

    def kill(self, victims: Sequence[str]) -> None:
        """End these processes, now."""
        network = self._network
        self._forget()
        self._victims = {name: network.brokers[name] for name in victims}
        self._killed_us = network.world.now_us
        plan = network.state.survival.plan
        self._bereft = {name for name in victims if not {*_names(plan.get(name, NONE))} - {*victims}}
        self._needs = {
            name: (each.local is not None, each.remote is not None)
            for name, each in plan.items()
            if name not in self._victims and {*_names(each)} & {*victims}
        }
        for name in victims:
            network.world.crash(name)

    def end(self) -> None:
        """Start them again; what happens from now on is of no run."""
        victims, self._victims, self._needs = self._victims, {}, {}
        for name in victims:
            self._network.world.restart(name)

    def is_over(self) -> bool:
        """Whether all is as it will be until somebody comes back."""
        serving = [name for name, info in self._victims.items() if info.role != Role.STANDBY]
        standbys = sum(
            each.role == Role.STANDBY
            for each in self._network.brokers.values()
            if each.id not in self._victims
        )
        return (
            len(self._lost) == len(self._victims)
            and all(
                name in self._taken or name in self._replaced for name in serving if name not in self._bereft
            )
            and len(self._replaced) >= min(len(serving), standbys)
            and len(self._planned) == len(self._needs)
        )

    def is_backed(self) -> bool:
        """Whether every broker that serves was told of two backups, as far as there can be two."""
        brokers = [each for each in self._network.brokers.values() if each.role != Role.STANDBY]
        clusters = [each.cluster for each in brokers]
        counts = {cluster: clusters.count(cluster) for cluster in dict.fromkeys(clusters)}
        for each in brokers:
            known = self._backups.get(each.id)
            if known is None or (known.local is None and counts[each.cluster] > 1):
                return False
            if known.remote is None and len(counts) > 1:
                return False
        return True

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def _on_happening(self, address: Address, happening: str) -> None:
        if happening == "started":
            self._backups.pop(address, None)

    def _told(self, address: Address, effect: BackupsKnown | StandIn | StandDown) -> None:
        now_us = self._network.world.now_us
        if isinstance(effect, BackupsKnown):
            self._backups[address] = effect
            local, remote = self._needs.get(address, (False, False))
            has = (self._is_there(effect.local) or not local) and (
                self._is_there(effect.remote) or not remote
            )
            if address in self._needs and has:
                self._planned.setdefault(address, now_us)
        elif isinstance(effect, StandIn) and effect.broker in self._victims:
            self._taken.setdefault(effect.broker, (now_us, address))

    def _is_there(self, backup: BrokerInfo | None) -> bool:
        """It is somebody, and no process that was killed and is not missed yet."""
        return backup is not None and self._victims.get(backup.id) != backup

    def _look(self, entry: Entry) -> None:
        if entry.subject != PLACES.commands_subject:
            return
        now_us = self._network.world.now_us
        for command in decode_batch(entry.payload).commands:
            if isinstance(command, Lost):
                if command.broker in self._victims:
                    self._lost.setdefault(command.broker, now_us)
                else:
                    self._wrongly.add(command.broker)
            elif isinstance(command, Said) and isinstance(joined := command.commands[0], Joined):
                before = self._victims.get(joined.info.id)
                if before is not None and before.port != joined.info.port:
                    self._replaced.setdefault(joined.info.id, now_us)

    # ── what came of it ─────────────────────────────────────────────────────────────────────────────────────

    def fates(self) -> tuple[Fate, ...]:
        return tuple(
            Fate(
                broker=name,
                serves=info.role != Role.STANDBY,
                bereft=info.role != Role.STANDBY and name in self._bereft,
                lost_s=self._since(self._lost.get(name)),
                taken_over_s=self._since(self._taken[name][0]) if name in self._taken else None,
                by=self._taken[name][1] if name in self._taken else None,
                replaced_s=self._since(self._replaced.get(name)),
            )
            for name, info in self._victims.items()
        )

    @property
    def bereaved(self) -> int:
        return len(self._needs)

    def wrongly(self) -> int:
        """How many were lost that had not been killed, since this was asked last."""
        count, self._wrongly = len(self._wrongly), set()
        return count

    def planned_s(self) -> float | None:
        return last(self._since(self._planned.get(name)) for name in self._needs)

    def _since(self, at_us: int | None) -> float | None:
        return None if at_us is None else (at_us - self._killed_us) / MILLION


def _names(backups: Backups) -> Iterator[str]:
    return (each for each in (backups.local, backups.remote) if each is not None)
