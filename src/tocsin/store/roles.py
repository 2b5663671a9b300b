"""Who may do what in the store: one table, from which the servers' configuration is made.

A **role** is a kind of process. Each has a key of its own, and the server lets it publish and subscribe to what its row
says. Rows name the network's streams (logs, and tables as ``KV_…``) with what is done to each:

    make     create it if it is missing; never change or delete it
    read     look at it, read by position, follow, watch
    write    append to it, put into it
    trim     forget what lies before a position
    adapt    change its bounds, which may drop what is in it

and the subjects of the bus that it says something on, or hears. An inbox is where answers come: each role hears its own
only, and may send to the inboxes of those whom it answers.

The operator may do everything, deleting included; nobody else may delete a stream. To adapt a table is allowed to who
may empty it anyway, key by key; a log is adapted by one role, which is never one that only appends to it: a
broker can neither purge the message log nor shrink it. A **user** of SQL is a name that the server has proven, and may
ask the pipeline under that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from tocsin.store.stream import MARK, own_marks

Verb = Literal["make", "read", "write", "trim", "adapt"]
Role = Literal["broker", "coordinator", "pipeline", "feeder", "operator"]
ROLES: Final[tuple[Role, ...]] = ("broker", "coordinator", "pipeline", "feeder", "operator")
USER: Final = "user"  # prefix of the inbox of those who may ask for SQL and nothing else

# Streams by the name behind the network's and a hyphen, and the subjects that they take. N stands for the network.
LOGS: Final[Mapping[str, tuple[str, ...]]] = {
    "commands": ("N.c", "N.n.>"),
    "snapshots": ("N.s.>",),
    "messages": ("N.m.>", "N.c.>", "N_said.>"),
    "notices": ("N.notices",),
    "feeds": ("N.feeds.>",),
}
TABLES: Final[tuple[str, ...]] = (
    "network",
    "retained",
    "sessions",
    "groups",
    "catalogue",
    "channel-subscriptions",
    "pipeline",
    "feeder",
    "coordination",
)


class Row(msgspec.Struct, frozen=True):
    """What one role does."""

    streams: Mapping[str, frozenset[Verb]]  # by the name of a log or table
    says: tuple[str, ...]  # subjects of the bus
    hears: tuple[str, ...]
    answers: tuple[str, ...]  # roles whose requests it answers


def _row(
    *,
    streams: Mapping[str, str],
    says: Iterable[str] = (),
    hears: Iterable[str] = (),
    answers: Iterable[str] = (),
) -> Row:
    verbs = {name: frozenset(text.split()) for name, text in streams.items()}
    return Row(verbs, tuple(says), tuple(hears), tuple(answers))  # type: ignore[arg-type]


OWN: Final = "make adapt read write"

TABLE: Final[Mapping[Role, Row]] = {
    "broker": _row(
        streams={
            "commands": "make read",
            "messages": "make read write",
            "notices": "make read",
            "network": OWN,
            "retained": OWN,
            "sessions": OWN,
            "groups": OWN,
            "channel-subscriptions": OWN,
            "catalogue": "make read",
        },
        says=(
            "N.to.coordinator",
            "N.to.coordinator.>",
            "N.replication.*",
            "N.arrivals",
            "N.session.*",
            "N.holders.*",
            "N.owner.*",
            "N.wills.*",
            "N.pipeline.results",
        ),
        hears=(
            "N.to.broker.>",
            "N.replication.*",
            "N.arrivals",
            "N.session.*",
            "N.holders.*",
            "N.owner.*",
            "N.wills.*",
            "N.summary.*",
        ),
        answers=("broker", "coordinator"),
    ),
    "coordinator": _row(
        streams={
            "commands": f"{OWN} trim",
            "snapshots": f"{OWN} trim",
            "coordination": OWN,
            "messages": "make adapt",
        },
        says=("N.to.>", "N.summary.*"),
        hears=("N.to.coordinator", "N.to.coordinator.>"),
    ),
    "pipeline": _row(
        streams={
            "pipeline": OWN,
            "catalogue": OWN,
            "notices": f"{OWN} trim",
            "feeds": "make adapt read trim",
            "channel-subscriptions": "make read",
            "feeder": "make read",
            "sessions": "make read",
            "messages": "make read",
        },
        hears=("N.pipeline.>",),
        answers=("broker", "operator", USER),
    ),
    "feeder": _row(
        streams={
            "feeder": OWN,
            "feeds": "make read write",
            "messages": "make read",
            "catalogue": "make read",
        },
        hears=("N.feeder.status",),
        answers=("operator", USER),
    ),
    "operator": _row(streams={}, says=(">",), hears=(">",)),
}


class Permissions(msgspec.Struct, frozen=True):
    """Subjects, as a NATS server has them."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def permissions(role: Role, network: str) -> Permissions:
    """What the server lets a role do."""
    row = TABLE[role]
    publish: list[str] = []
    for name, verbs in row.streams.items():
        publish += _stream_subjects(name, verbs, network)
    publish += [_in(network, each) for each in row.says]
    publish += [f"_INBOX.{each}.>" for each in dict.fromkeys((role, *row.answers))]
    if ">" in publish:
        publish = [">"]
    else:
        publish.append("$JS.API.INFO")
    hears = [_in(network, each) for each in row.hears]
    subscribe = [">"] if ">" in hears else [*hears, f"_INBOX.{role}.>"]
    return Permissions(tuple(dict.fromkeys(publish)), tuple(subscribe))


def may_adapt(role: str, stream: str) -> bool:
    """Whether a role changes the bounds of a stream that has others; without roles everybody does.

    An operator could, but settings for a question are not those for a network.
    """
    if not role:
        return True
    row = TABLE.get(role)  # type: ignore[call-overload]
    named = stream.removeprefix("KV_")
    return row is not None and any(
        "adapt" in verbs and named.endswith(f"-{name}") for name, verbs in row.streams.items()
    )


def user_permissions(name: str, network: str) -> Permissions:
    """What the server lets a user of SQL do: ask under that name, and hear the answers."""
    inbox = f"_INBOX.{USER}.{name}.>"
    asks = (f"{network}.pipeline.sql.{name}", f"{network}.pipeline.status", f"{network}.feeder.status")
    return Permissions((*asks, inbox), (inbox,))


def _in(network: str, subject: str) -> str:
    return network + subject[1:] if subject[:2] in ("N.", "N_") else subject


def _stream_subjects(name: str, verbs: frozenset[Verb], network: str) -> list[str]:
    stream = f"{network}-{name}" if name in LOGS else f"KV_{network}-{name}"
    taken = [_in(network, each) for each in LOGS[name]] if name in LOGS else [f"$KV.{network}-{name}.>"]
    api = "$JS.API"
    subjects = [f"{api}.STREAM.INFO.{stream}"]
    if "make" in verbs:
        subjects.append(f"{api}.STREAM.CREATE.{stream}")
    if "adapt" in verbs:
        subjects.append(f"{api}.STREAM.UPDATE.{stream}")
    if "read" in verbs:
        subjects += [
            f"{api}.STREAM.MSG.GET.{stream}",
            f"{api}.DIRECT.GET.{stream}",
            f"{api}.DIRECT.GET.{stream}.>",
            f"{api}.CONSUMER.CREATE.{stream}.>",
            f"{api}.CONSUMER.MSG.NEXT.{stream}.*",
            f"{api}.CONSUMER.DELETE.{stream}.*",
        ]
        # Fresh reads write marks, which nobody reads (``store.stream``).
        subjects += (
            [own_marks(taken)] if name in LOGS else [f"{taken[0][:-1]}{each}{MARK}" for each in ("", "*.")]
        )
    if "write" in verbs:
        subjects += taken
    if "trim" in verbs:
        subjects.append(f"{api}.STREAM.PURGE.{stream}")
    return subjects
