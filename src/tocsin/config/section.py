"""The base of the sections of the settings."""

from __future__ import annotations

import msgspec

NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"  # one DNS label, which is also one token of a NATS subject


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the settings' parts."""
