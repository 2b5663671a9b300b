"""The visible events of a run and their observers: the hooks that invariants hang on.

Everything observed is something that really left a machine or entered the store: a ``Say``, a delivered message, an
entry that became durable, a change of a table, a node that came or went. The world tells what a machine believes. Each
hook costs nothing while nobody looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from tocsin.core.machine import PutKey, Say
from tocsin.model.network import Address, Message
from tocsin.ports import Change, Entry

Kind = TypeVar("Kind", bound=Message)

SayHook = Callable[[Address, Say], None]
DeliveryHook = Callable[[Address, Address, Message], None]
EntryHook = Callable[[Entry], None]
ChangeHook = Callable[[Change], None]
HappeningHook = Callable[[Address, str], None]
WriteHook = Callable[[Address, PutKey, int], None]


class Observers:
    """The observers of each kind of event. Hooks run in the order in which they were added."""

    def __init__(self) -> None:
        self.says: defaultdict[str, list[SayHook]] = defaultdict(list)
        self.deliveries: defaultdict[type[Message], list[DeliveryHook]] = defaultdict(list)
        self.entries: defaultdict[str, list[EntryHook]] = defaultdict(list)
        self.changes: defaultdict[str, list[ChangeHook]] = defaultdict(list)
        self.writes: defaultdict[str, list[WriteHook]] = defaultdict(list)
        self.happenings: list[HappeningHook] = []
        self.every_event: list[Callable[[], None]] = []

    def on_say(self, text: str, hook: SayHook) -> None:
        """``hook(node, say)`` for every ``Say`` with exactly this text; its facts say the rest."""
        self.says[text].append(hook)

    def on_delivery(self, kind: type[Kind], hook: Callable[[Address, Address, Kind], None]) -> None:
        """``hook(sender, receiver, message)`` for every message of this class that reaches a running node."""
        self.deliveries[kind].append(hook)  # type: ignore[arg-type]

    def on_entry(self, log: str, hook: EntryHook) -> None:
        """``hook(entry)`` at the moment an entry of this log is durable, before anybody is told."""
        self.entries[log].append(hook)

    def on_change(self, table: str, hook: ChangeHook) -> None:
        """``hook(change)`` for every put and delete of this table, expiry included, as it happens."""
        self.changes[table].append(hook)

    def on_write(self, table: str, hook: WriteHook) -> None:
        """``hook(node, put, revision)`` for every put of this table that took effect: whose it was, answered or not."""
        self.writes[table].append(hook)

    def on_happening(self, hook: HappeningHook) -> None:
        """``hook(node, happening)``: started, crashed, asleep, paused, resumed, stopped, disconnected."""
        self.happenings.append(hook)

    def after_every_event(self, hook: Callable[[], None]) -> None:
        """For invariants over the whole state. It is called a million times in a run: keep it small."""
        self.every_event.append(hook)
