"""Events and effects of ``core.survival.landmark``."""

from __future__ import annotations

from tocsin.core.machine import Effect, Event
from tocsin.model.network import BrokerInfo, Route

# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class RosterKnown(Event, frozen=True, kw_only=True):
    """The brokers of this cluster, perhaps including this one."""

    brokers: tuple[BrokerInfo, ...]


class BacksKnown(Event, frozen=True, kw_only=True):
    """The brokers that this broker backs locally."""

    primaries: tuple[str, ...]


class WantsChanged(Event, frozen=True, kw_only=True):
    """The first client here with a filter came, or the last one went."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Severed(Event, frozen=True, kw_only=True):
    """No leader has heard this broker for longer than one waits."""


class Restored(Event, frozen=True, kw_only=True):
    """A leader counts on this broker again."""


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class NeighboursWanted(Effect, frozen=True, kw_only=True):
    """Have links to these, whatever routes there are, and to nobody else for this."""

    peers: tuple[BrokerInfo, ...]


class NearRoutes(Effect, frozen=True, kw_only=True):
    """Routes beside those of the coordinator's come and go."""

    added: tuple[Route, ...]
    removed: tuple[Route, ...]


class LandmarkKnown(Effect, frozen=True, kw_only=True):
    """The landmark's id, as far as this broker knows; empty if a leader is heard."""

    landmark: str


class MeanwhileIn(Effect, frozen=True, kw_only=True):
    """Stand in for a broker of the cluster, until a leader is heard: without an epoch, and without writing anything."""

    broker: str


class MeanwhileOut(Effect, frozen=True, kw_only=True):
    """The takeover for the time of the cut is over."""

    broker: str
