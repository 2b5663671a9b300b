"""The settings of tiers of routing brokers: by what their slots are placed."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tocsin.config.section import Section


class Routing(Section, frozen=True, kw_only=True):
    """Tiers of routing brokers, which carry between clusters."""

    balance: Annotated[
        Literal["topics", "messages", "bytes", "processor", "connections", "delay", "hash"],
        Meta(
            description="What the members of a tier carry alike: `topics`, `messages` or `bytes` a second, or messages "
            "by how quick each machine is (`processor`). `connections`: what goes between the same clusters goes over "
            "the same members; `delay`: over members near those clusters. `hash`: whatever topics bring."
        ),
    ] = "messages"
    least: Annotated[
        int,
        Meta(
            ge=0,
            le=255,
            description="Members that a tier has at least, from which on it grows and shrinks by its load. `tocsin up` "
            "starts so many of each tier, and further ones of those that are configured when they are needed. "
            "0: tiers are as large as they are.",
        ),
    ] = 0
    most: Annotated[
        int,
        Meta(
            ge=0,
            le=255,
            description="Members that a tier has at most. 0: as many as are configured.",
        ),
    ] = 0
    cooldown_s: Annotated[
        int,
        Meta(ge=1, le=86_400, description="Time after a tier grew or shrank in which it does neither again."),
    ] = 60
    shrink_after_s: Annotated[
        int,
        Meta(ge=1, le=86_400, description="How long little is carried before a tier shrinks by a member."),
    ] = 300
    command: Annotated[
        tuple[str, ...],
        Meta(
            max_length=64,
            description="Command that the leading coordinator runs when a tier should have another size, for members "
            "that `tocsin up` does not start. In each word `{tier}` stands for the tier, `{members}` for the number of "
            "members, and `{stop}` for the one that carries nothing any more (empty when it grows).",
        ),
    ] = ()
