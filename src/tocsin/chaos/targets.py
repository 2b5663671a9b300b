"""Targets by name: one part of a network, or several at once.

broker/north-1, north-1     a broker            cluster/north     all brokers of a cluster
coordinator-1, store-1      a process           role/edge         all brokers of a role; role/routing, role/standby
pipeline, feeder            these               role/broker       all of a kind; role/coordinator, role/store
                                                role/leader       the coordinator that leads at that moment

Several, joined by ``+``, are one target: ``broker/north-1+store-1``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from tocsin.chaos.plan import EVERYTHING, KINDS, Candidate, Kind
from tocsin.errors import OperatorError

Address = tuple[str, int]
PartKind = Literal["store", "coordinator", "broker", "pipeline", "feeder"]
LEADER: Final = "role/leader"
STORE: Final = "role/store"
TOGETHER: Final = "+"
# The roles that the load needs; the pipeline and the feeder are broken only if they are named.
NEEDED: Final = ("store", "coordinator", "broker")


class Part(msgspec.Struct, frozen=True):
    """One process of a network, by the name under which ``tocsin up`` shows it."""

    name: str
    kind: PartKind
    cluster: str = ""  # of a broker
    role: str = ""  # of a broker
    address: Address | None = None  # where other processes reach it: of a broker, its peers' links
    entrance: tuple[str, int, str] | None = None  # where clients of a broker come in: host, port and scheme


def names(parts: Sequence[Part]) -> Mapping[str, tuple[str, ...]]:
    """Every target, and the parts that it stands for; ``LEADER`` for all coordinators, as any may lead."""
    found: dict[str, list[str]] = {part.name: [part.name] for part in parts}
    for part in parts:
        found.setdefault(f"role/{part.kind}", []).append(part.name)
        if part.kind == "coordinator":
            found.setdefault(LEADER, []).append(part.name)
        if part.kind == "broker":
            found.setdefault(f"role/{part.role}", []).append(part.name)
            found.setdefault(f"cluster/{part.cluster}", []).append(part.name)
            found.setdefault(part.name.removeprefix("broker/"), []).append(part.name)
    return {name: tuple(each) for name, each in found.items()}


def resolve(target: str, parts: Sequence[Part]) -> tuple[str, ...]:
    """The parts that a target stands for, each once. ``OperatorError`` names those there are."""
    known = names(parts)
    found: dict[str, None] = {}
    for each in target.split(TOGETHER):
        if each not in known:
            short = {part.name.removeprefix("broker/") for part in parts if part.kind == "broker"}
            shown = sorted(name for name in known if name not in short)
            raise OperatorError(
                f"there is no {each!r} in the network that runs here", f"Name one of {', '.join(shown)}"
            )
        found.update(dict.fromkeys(known[each]))
    return tuple(found)


def candidates(chosen: Sequence[str], parts: Sequence[Part], *, partitions: bool) -> tuple[Candidate, ...]:
    """The targets that ``--random`` chooses from: the named ones, or every process that the load needs, and every
    cluster as a whole.

    A role stands for each of its parts by itself, but ``LEADER``. ``partitions``: whether the network allows them.
    """
    targets: dict[str, None] = {}  # in order, each once
    for name in chosen:
        members = resolve(name, parts)
        alone = name.startswith("role/") and name != LEADER and TOGETHER not in name
        targets.update(dict.fromkeys(members if alone else [name]))
    if not chosen:
        targets.update(dict.fromkeys(part.name for part in parts if part.kind in NEEDED))
        targets.update(dict.fromkeys(f"cluster/{part.cluster}" for part in parts if part.kind == "broker"))
    return tuple(_candidate(name, parts, partitions) for name in targets)


def _candidate(name: str, parts: Sequence[Part], partitions: bool) -> Candidate:
    members = set(resolve(name, parts))
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind != "partition")
    mine = [part for part in parts if part.name in members]
    if not partitions or any(part.kind == "store" for part in mine):
        return Candidate(name, kinds)
    others = [EVERYTHING, "store"]
    if any(part.kind == "broker" for part in mine):
        others += [part.name for part in parts if part.kind == "broker" and part.name not in members]
    return Candidate(name, KINDS, tuple(others))


def _others(others: str, parts: Sequence[Part]) -> tuple[str, ...]:
    """As ``resolve``, where ``store`` stands for all servers of ours, also if there is none."""
    found: dict[str, None] = {}
    for each in others.split(TOGETHER):
        stores = [part.name for part in parts if part.kind == "store"]
        found.update(dict.fromkeys(stores if each == "store" else resolve(each, parts)))
    return tuple(found)


def sides(
    names: Sequence[str], others: str, parts: Sequence[Part], stores: Sequence[Address]
) -> Mapping[str, tuple[Address, ...]]:
    """The addresses that each process has to cut off, so that nothing passes between the named parts and others.

    The process that dials a connection can cut it: brokers dial each other, and every process of ours dials the store.
    Raises ``OperatorError`` if ``others`` is no target.
    """
    known = {part.name: part for part in parts}
    if others == EVERYTHING:
        rest = [part.name for part in parts if part.kind in ("broker", "store") and part.name not in names]
    else:
        rest = [name for name in _others(others, parts) if name not in names]
    found: dict[str, dict[Address, None]] = {}
    for ours, theirs in ((names, rest), (rest, names)):
        for name in ours:
            dialled = ("broker", "store") if known[name].kind == "broker" else ("store",)
            reached = [known[each].address for each in theirs if known[each].kind in dialled]
            found.setdefault(name, {}).update(dict.fromkeys(each for each in reached if each is not None))
    if {EVERYTHING, "store", STORE} & set(others.split(TOGETHER)):
        for name in names:  # servers that are not ours to start have an address all the same
            found[name].update(dict.fromkeys(stores))
    return {
        name: tuple(addresses)
        for name, addresses in found.items()
        if addresses and known[name].kind != "store"
    }
