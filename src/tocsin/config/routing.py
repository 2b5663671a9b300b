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
