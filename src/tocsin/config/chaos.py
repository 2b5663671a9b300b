"""The settings of what may be done to a network to see whether it survives."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tocsin.config.section import Section

Enabled = Literal["auto", "always", "never"]


class Chaos(Section, frozen=True, kw_only=True):
    """Faults that `tocsin chaos` may request from the processes themselves."""

    enabled: Annotated[
        Enabled,
        Meta(
            description="Whether processes let `tocsin chaos` cut their connections to the store and to each other, "
            "for a while. `auto`: those that `tocsin up` starts. It can kill, pause and slow them down in any case."
        ),
    ] = "auto"
