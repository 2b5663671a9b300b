"""The table of backend subscriptions, as the pipeline holds it.

A watch of the table is applied change by change. For each channel there is k → ``HeldSubscription``: the values, and
the brokers for which there are rows: those with an active cell or, if there is none, those with standby cells. The
changes since the last call are remembered by channel, so that the tables that Spark joins with
(``pipeline.execution.subscription_tables``) follow at the cost of the changes. When the watch starts again, cells that
it does not repeat are gone.

A channel without parameters that other channels read is held for them too, as by a standby (``hold_for_readers``): they
would find nothing while nobody subscribes to it. Of others nobody knows with which values.

Names of channels are those of keys: in lower case. A damaged cell is left out and counted; at a cell that only a newer
process can read, this process ends with a reason (``FormatNewer``), for its broker would wait for results in vain.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from tocsin.errors import Malformed
from tocsin.model.results import STANDBY, Value, decode_subscription, k_of
from tocsin.ports import Change

K_CHARS: Final = 24  # of an id (model.results.k_of)
READERS: Final = "_channels"  # in place of a broker, of which none has such an id: those who read the results


class HeldSubscription:
    """A backend subscription and those who hold it. Its values are replaced, never changed."""

    __slots__ = ("brokers", "earnest", "standby", "values")

    def __init__(
        self, values: tuple[Value, ...], earnest: tuple[str, ...], standby: tuple[str, ...] = ()
    ) -> None:
        self.values = values
        self.earnest = earnest  # brokers, sorted …
        self.standby = standby  # … and those that would hold it, if there were none
        self.brokers = earnest or standby  # those who get rows: at least one


class Subscriptions:
    """All of a network's."""

    def __init__(self) -> None:
        self.ready = False  # everything that there was when the watch began is here
        self.malformed = 0
        self.revision = 0  # the newest of the table that was applied
        self._held: dict[str, dict[str, HeldSubscription]] = {}
        self._changed: dict[str, set[str]] = {}
        self._read: set[str] = set()  # channels that are held for their readers
        self._fresh: set[str] | None = None  # keys that a restarted watch has repeated so far
        self._broker_sets: dict[
            tuple[str, ...], tuple[str, ...]
        ] = {}  # one object for each set: there are few

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def of(self, channel: str) -> Mapping[str, HeldSubscription]:
        """k → its holders; not to be kept."""
        return self._held.get(channel.lower(), {})

    def channels(self) -> tuple[str, ...]:
        return tuple(self._held)

    def take_changes(self, channel: str) -> set[str]:
        """The ks of a channel that came, went or moved since this was asked last."""
        return self._changed.pop(channel.lower(), set())

    def hold_for_readers(self, channels: Collection[str]) -> None:
        """These channels, and no others, are held for channels that read them; they have no parameters."""
        wanted = {channel.lower() for channel in channels}
        for channel in wanted ^ self._read:
            self._change(channel, k_of(channel, ()), READERS, True, () if channel in wanted else None)
        self._read = wanted

    def apply(self, change: Change) -> None:
        """Apply the watch's next event."""
        self.revision = max(self.revision, change.revision)
        match change.kind:
            case "put":
                self._put(change.key, change.value)
            case "delete":
                self._delete(change.key)
            case "reset":
                self._fresh = set() if self.ready else None  # the first time there is nothing old
            case "ready":
                self._forget_unrepeated()
                self.ready = True

    def _put(self, key: str, value: bytes) -> None:
        parts = _parts(key)
        try:
            subscription = decode_subscription(value)
            if parts is None or subscription.key != key:
                raise Malformed(f"the cell {key!r} holds {subscription.key!r}")
        except Malformed:
            self.malformed += 1
            return
        if self._fresh is not None:
            self._fresh.add(key)
        self._change(*parts, subscription.values)

    def _delete(self, key: str) -> None:
        parts = _parts(key)
        if parts is not None:
            self._change(*parts, None)

    def _change(
        self, channel: str, k: str, broker: str, standby: bool, values: tuple[Value, ...] | None
    ) -> None:
        """A broker holds k, with these values, or (None) no longer; as a standby, or actively."""
        held = self._held.get(channel, {}).get(k)
        if held is None:
            if values is None:
                return
            held = HeldSubscription(values, ())
            self._held.setdefault(channel, {})[k] = held
        before, holders = held.brokers, set(held.standby if standby else held.earnest)
        (holders.discard if values is None else holders.add)(broker)
        if standby:
            held.standby = self._set(holders)
        else:
            held.earnest = self._set(holders)
        held.brokers = held.earnest or held.standby
        if not held.brokers:
            del self._held[channel][k]
            if not self._held[channel]:
                del self._held[channel]
        if held.brokers != before:
            self._changed.setdefault(channel, set()).add(k)

    def _set(self, brokers: Iterable[str]) -> tuple[str, ...]:
        ordered = tuple(sorted(map(sys.intern, brokers)))
        return self._broker_sets.setdefault(ordered, ordered)

    def _forget_unrepeated(self) -> None:
        fresh, self._fresh = self._fresh, None
        if fresh is None:
            return
        for key in [key for key in self._keys() if key not in fresh]:
            self._delete(key)

    def _keys(self) -> Iterator[str]:
        for channel, of_channel in self._held.items():
            for k, held in of_channel.items():
                for broker in held.earnest:
                    yield f"{channel}.{k}.{broker}"
                for broker in held.standby:
                    if broker != READERS:  # that is in no cell
                        yield f"{channel}.{k}.{broker}.{STANDBY}"


def _parts(key: str) -> tuple[str, str, str, bool] | None:
    """``channel.k.broker``, of a standby with one more part: these, and whether it is one."""
    parts = key.split(".")
    standby = len(parts) == 4 and parts[3] == STANDBY
    if len(parts) != 3 + standby or len(parts[1]) != K_CHARS or not parts[0] or not parts[2]:
        return None
    return sys.intern(parts[0]), parts[1], parts[2], standby
