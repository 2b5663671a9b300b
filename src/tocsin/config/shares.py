"""How much of the store each table and log may take."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tocsin.config.section import Section

LEAST_BYTES = 8 << 20  # a few of the largest records, and what is written beside them
MOST_BYTES = 1 << 50


class Shares(Section, frozen=True, kw_only=True):
    """Bytes of the store that each table and log may take: a full one refuses what is new, and stops no other."""

    sessions_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="Stored sessions. From four fifths of it on no new ones are made (CONNECT 0x97), from nine "
            "tenths on those that there are do not grow (SUBSCRIBE 0x97).",
        ),
    ] = 1 << 30
    groups_bytes: Annotated[
        int, Meta(ge=LEAST_BYTES, le=MOST_BYTES, description="Groups, with their members and claims.")
    ] = 256 << 20
    retained_bytes: Annotated[
        int, Meta(ge=LEAST_BYTES, le=MOST_BYTES, description="Retained messages. Over it PUBLISH is refused.")
    ] = 2 << 30
    accounts_bytes: Annotated[
        int,
        Meta(ge=LEAST_BYTES, le=MOST_BYTES, description="Accounts of users who registered, and invitations."),
    ] = 64 << 20
    network_bytes: Annotated[
        int, Meta(ge=LEAST_BYTES, le=MOST_BYTES, description="What brokers have in common.")
    ] = 16 << 20
    coordination_bytes: Annotated[
        int,
        Meta(ge=LEAST_BYTES, le=MOST_BYTES, description="The leader's lease, and the coordinators' status."),
    ] = 64 << 20
    commands_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="The coordinators' command log. It should be eight times "
            "`coordinator.snapshot_every_bytes`: brokers wait from four times on.",
        ),
    ] = 1 << 30
    snapshots_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="Snapshots of the coordinators' state: two of the largest must fit.",
        ),
    ] = 3 << 30
    catalogue_bytes: Annotated[
        int, Meta(ge=LEAST_BYTES, le=MOST_BYTES, description="Definitions of datasets, feeds and channels.")
    ] = 64 << 20
    channel_subscriptions_bytes: Annotated[
        int, Meta(ge=LEAST_BYTES, le=MOST_BYTES, description="Subscriptions to channels.")
    ] = 256 << 20
    pipeline_bytes: Annotated[
        int, Meta(ge=LEAST_BYTES, le=MOST_BYTES, description="How far channels and feeds are.")
    ] = 64 << 20
    feeder_bytes: Annotated[
        int, Meta(ge=LEAST_BYTES, le=MOST_BYTES, description="How far the agents of feeds are.")
    ] = 64 << 20
    notices_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="Notices of channels' results that stored sessions still need.",
        ),
    ] = 1 << 30
    feeds_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_BYTES,
            le=MOST_BYTES,
            description="Records of feeds that are in no dataset yet. Over it feeds wait for the pipeline.",
        ),
    ] = 4 << 30

    def by_name(self, network: str) -> dict[str, int]:
        """The share of each table and log of a network."""
        fields = {field: field.removesuffix("_bytes").replace("_", "-") for field in self.__struct_fields__}
        return {f"{network}-{name}": getattr(self, field) for field, name in fields.items()}
