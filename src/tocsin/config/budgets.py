"""The budgets of a broker: how many bytes of its memory clients may make it hold, by what for.

Each budget is one broker's. One user may have ``user_percent`` of each, and one client ``client_percent``.
``core.budgets.budget`` and ``docs/explanation/budgets.md`` say what is counted and what happens at the limit.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tocsin.config.section import Section

LEAST_BYTES = (
    16 << 20
)  # so that the smallest share of a client, 10 percent, holds a packet of the largest size
MOST_BYTES = 1 << 40


class Budgets(Section, frozen=True, kw_only=True):
    """Bytes of a broker's memory that its clients may make it hold."""

    outbound_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="Answers and messages that wait because clients do not read. A client over its share is not "
            "read from, loses QoS 0 messages, and is disconnected if it still does not read.",
        ),
    ] = 128 << 20
    commits_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="QoS 1 and 2 messages that wait for the store. The broker stops reading from a client over "
            "its share.",
        ),
    ] = 64 << 20
    held_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="Messages that wait until the network knows of their streams. The broker stops reading "
            "from a client over its share.",
        ),
    ] = 32 << 20
    packets_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="Packets that came in part, or wait for their turn. Over its share a client is disconnected.",
        ),
    ] = 64 << 20
    pages_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="Pages of the log that are read for clients that are behind. Without room they wait.",
        ),
    ] = 96 << 20
    sessions_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="Subscriptions and wills of connected clients. Without room CONNECT or SUBSCRIBE is refused.",
        ),
    ] = 256 << 20
    groups_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="Messages that wait for a member of their group (`$share`). Without room they are read from "
            "the log later.",
        ),
    ] = 64 << 20
    store_bytes: Annotated[
        int,
        Meta(
            ge=64 << 20,
            le=MOST_BYTES,
            description="Memory that each embedded NATS server keeps to, by collecting more often (GOMEMLIMIT).",
        ),
    ] = 512 << 20
    retained_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="Retained messages of the whole network, each of which every broker knows, with 1 KiB beside "
            "each. Without room PUBLISH is refused; at QoS 0 a message is delivered and not retained.",
        ),
    ] = 384 << 20
    retained_held_bytes: Annotated[
        int,
        Meta(
            ge=2 << 20,
            le=MOST_BYTES,
            description="Payloads of retained messages that a broker keeps in memory; it fetches the others when a "
            "client subscribes. Those that came first go first.",
        ),
    ] = 64 << 20
    results_cache_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_BYTES,
            description="Results of channels that a broker keeps in memory, for clients that are behind or ask for "
            "them; the least recently used go first. 0: none.",
        ),
    ] = 48 << 20
    user_percent: Annotated[
        int,
        Meta(
            ge=10,
            le=100,
            description="Percent of each budget that the clients of one user may have together. "
            "Clients without a name are one user.",
        ),
    ] = 50
    client_percent: Annotated[
        int, Meta(ge=10, le=100, description="Percent of each budget that one client may have.")
    ] = 12
