"""The rights of roles in the store: one table, from which the servers' configuration is made.

A **role** is a kind of process. Each has a key of its own, and the server lets it publish and subscribe to what its row
says. Rows name the network's streams (logs, and tables as ``KV_…``) with what is done to each:

    look     see how large it is; every other verb includes it
    read     read by position, follow, watch
    fresh    read it fresh, which writes marks (``store.jetstream.stream``); every reader of a log may
    write    append to it, put into it
    trim     forget what lies before a position

and the subjects of the bus that it says something on, or hears. An inbox is where answers come: each role hears its own
only, and may send to the inboxes of the roles that it answers.

The operator may do everything. Nobody else creates, changes or deletes a stream: a role that may change one can have it
copy any other (``sources``), and shrinking a log purges it. ``tocsin up`` and ``tocsin store prepare`` make them.

**Two accounts.** A server sends the answer to a *direct get*, a stored message as it is, to whatever subject the
request names, even one that the requester may not publish on, and any listener there gets it. So direct gets are not in
the account of the streams (``STREAMS``) but in one that has only them (``READS``). The server maps their answers back
to that account, where nobody listens but those who ask. Each role has a second key there, made of its first.

A **user** of SQL is a name that the server has proven, and may ask the pipeline under that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from tocsin.store.jetstream.stream import MARK, own_marks

Verb = Literal["look", "read", "fresh", "write", "trim"]
Role = Literal["broker", "coordinator", "pipeline", "feeder", "operator"]
ROLES: Final[tuple[Role, ...]] = ("broker", "coordinator", "pipeline", "feeder", "operator")
STREAMS: Final = "streams"  # the account of streams and bus
READS: Final = "reads"  # the account of direct gets
USER: Final = "user"  # prefix of the inbox of users with a right to SQL and nothing else

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
    "accounts",
    "catalogue",
    "channel-subscriptions",
    "pipeline",
    "feeder",
    "coordination",
)


class Row(msgspec.Struct, frozen=True):
    """The rights of one role."""

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


OWN: Final = "read fresh write"

TABLE: Final[Mapping[Role, Row]] = {
    "broker": _row(
        streams={
            "commands": "read",
            "messages": "read write",
            "notices": "read",
            "network": OWN,
            "retained": OWN,
            "sessions": OWN,
            "groups": OWN,
            "accounts": OWN,
            "channel-subscriptions": OWN,
            "catalogue": "read",
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
            "N.quality.*",
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
            "N.quality.*",
            "N.summary.*",
        ),
        answers=("broker", "coordinator", "operator"),
    ),
    "coordinator": _row(
        streams={
            "commands": f"{OWN} trim",
            "snapshots": f"{OWN} trim",
            "coordination": OWN,
            "messages": "look",
        },
        says=("N.to.>", "N.summary.*"),
        hears=("N.to.coordinator", "N.to.coordinator.>"),
    ),
    "pipeline": _row(
        streams={
            "pipeline": OWN,
            "catalogue": OWN,
            "notices": f"{OWN} trim",
            "feeds": "read trim",
            "channel-subscriptions": "read",
            "feeder": "read fresh",
            "sessions": "read fresh",
            "groups": "read fresh",
            "messages": "read",
        },
        hears=("N.pipeline.>",),
        answers=("broker", "operator", USER),
    ),
    "feeder": _row(
        streams={
            "feeder": OWN,
            "feeds": "read write",
            "messages": "read",
            "catalogue": "read",
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


# The role whose settings bound the streams, where servers know no roles; with roles it is the operator.
ADAPTED: Final[Mapping[str, tuple[str, ...]]] = {
    "broker": ("network", "retained", "sessions", "groups", "accounts", "channel-subscriptions"),
    "coordinator": ("commands", "snapshots", "coordination", "messages"),
    "pipeline": ("pipeline", "catalogue", "notices", "feeds"),
    "feeder": ("feeder",),
}


def permissions(role: Role, network: str, *, direct: bool = False) -> Permissions:
    """A role's permissions in the streams' account. ``direct``: direct gets too, for want of another one."""
    row = TABLE[role]
    publish: list[str] = []
    for name, verbs in row.streams.items():
        publish += _stream_subjects(name, verbs, network)
        if direct and "read" in verbs:
            publish.append(_direct_get(name, network))
    publish += [_in(network, each) for each in row.says]
    publish += [f"_INBOX.{each}.>" for each in dict.fromkeys((role, *row.answers))]
    if ">" in publish:
        publish = [">"]
    else:
        publish.append("$JS.API.INFO")
    hears = [_in(network, each) for each in row.hears]
    subscribe = [">"] if ">" in hears else [*hears, f"_INBOX.{role}.>"]
    return Permissions(tuple(dict.fromkeys(publish)), tuple(subscribe))


def reading(role: Role, network: str) -> Permissions:
    """A role's permissions in the account of direct gets."""
    read = [name for name, verbs in TABLE[role].streams.items() if "read" in verbs]
    return Permissions(tuple(_direct_get(name, network) for name in read), (f"_INBOX.{role}.>",))


def direct_gets(network: str) -> tuple[str, ...]:
    """The imports of the account of direct gets from the streams' account."""
    return tuple(_direct_get(name, network) for name in (*LOGS, *TABLES))


def may_adapt(role: str, stream: str) -> bool:
    """Whether a role changes the bounds of a stream that has others, where servers know no roles.

    One role adapts a log, never a role that only appends to it. An operator could, but settings for a
    question are not those for a network.
    """
    if not role:
        return True
    named = stream.removeprefix("KV_")
    return any(named.endswith(f"-{name}") for name in ADAPTED.get(role, ()))


def user_permissions(name: str, network: str) -> Permissions:
    """The permissions of a user of SQL: to ask under that name, and to hear the answers."""
    inbox = f"_INBOX.{USER}.{name}.>"
    asks = (f"{network}.pipeline.sql.{name}", f"{network}.pipeline.status", f"{network}.feeder.status")
    return Permissions((*asks, inbox), (inbox,))


def _in(network: str, subject: str) -> str:
    return network + subject[1:] if subject[:2] in ("N.", "N_") else subject


def _stream(name: str, network: str) -> str:
    return f"{network}-{name}" if name in LOGS else f"KV_{network}-{name}"


def _direct_get(name: str, network: str) -> str:
    return f"$JS.API.DIRECT.GET.{_stream(name, network)}"


def _stream_subjects(name: str, verbs: frozenset[Verb], network: str) -> list[str]:
    stream, api = _stream(name, network), "$JS.API"
    taken = [_in(network, each) for each in LOGS[name]] if name in LOGS else [f"$KV.{network}-{name}.>"]
    subjects = [f"{api}.STREAM.INFO.{stream}"]
    if "read" in verbs:
        subjects += [
            f"{api}.STREAM.MSG.GET.{stream}",
            f"{api}.CONSUMER.CREATE.{stream}.>",
            f"{api}.CONSUMER.MSG.NEXT.{stream}.*",
            f"{api}.CONSUMER.DELETE.{stream}.*",
        ]
    if "read" in verbs and name in LOGS:
        subjects.append(own_marks(taken))
    elif (
        "fresh" in verbs
    ):  # a right to publish in a table is a right to empty it, by a header; a log has no such header
        subjects += [f"{taken[0][:-1]}{each}{MARK}" for each in ("", "*.")]
    if "write" in verbs:
        subjects += taken
    if "trim" in verbs:
        subjects.append(f"{api}.STREAM.PURGE.{stream}")
    return subjects
