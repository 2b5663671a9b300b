"""Channels at one broker: who here is subscribed to which, and the results on their way to them.

A client is subscribed under a **name**, which is the topic of what it gets, byte for byte: so every client library
finds the subscription that a message is for. Results come by ``k``; which names mean it is known to the holdings.

A result is sent as a CloudEvent in the binary mode of its MQTT 5 binding: attributes are user properties, the payload
is the result as JSON. MQTT 3.1.1 has the payload alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from tocsin.broker.channels.backend_subscriptions import BackendSubscriptions
from tocsin.broker.channels.results import Results
from tocsin.broker.client import Client, Recipient
from tocsin.core.channels.channel_filter import Bound
from tocsin.core.delivery.grant import Frames, grant_of_results
from tocsin.core.forwarding.table import Subscription
from tocsin.core.forwarding.tallies import Count
from tocsin.model.priority import CRITICAL
from tocsin.model.publication import Publication
from tocsin.model.results import POSITION, RESULT, RESULT_VERSION, Notice
from tocsin.results.reader import Result
from tocsin.wire.mqtt.topics import FilterInvalid

EVENT_TYPE: Final = "tocsin.channel.result"


class Channels:
    """The channels of one broker's clients."""

    def __init__(self, backend: BackendSubscriptions, results: Results, network: str) -> None:
        self.backend = backend
        self.results = results
        self.sent = 0  # results, to clients; repeats too
        self._network = network
        self._takers: dict[str, dict[Client, Subscription]] = {}  # by name
        self._names: dict[Client, dict[str, None]] = {}
        self._bytes: dict[str, int] = {}  # by name: of results since they were counted
        # Name → the topic that rules of access are about, as the channels were defined then.
        self._topics: dict[str, str] = {}
        self._defined = backend.definition_changes

    def held(self) -> Iterator[tuple[str, int]]:
        """The channel subscriptions of clients here, and their numbers."""
        return ((name, len(takers)) for name, takers in self._takers.items())

    def counts(self) -> list[Count]:
        """The bytes of results since the last time, for each client of a subscription."""
        counted, self._bytes = self._bytes, {}
        return [Count(name, size, len(self._takers[name])) for name, size in counted.items()]

    def statistics(self) -> dict[str, int]:
        return {
            **self.backend.machine.statistics(),
            **self.results.statistics(),
            "results_sent": self.sent,
        }

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def refused(self, taker: Client, name: str) -> str | None:
        """Why a client may not have the results of a channel with values, be it alone or in a group; None if it may."""
        try:
            bound = self.backend.machine.check(name, taker.may_subscribe)
        except FilterInvalid as error:
            return error.problem
        if not taker.may_receive(bound.topic):
            return f"not authorized: the client may not subscribe to {bound.topic!r}"
        return None

    def problem(self, taker: Client, name: str) -> str | None:
        """Why a client cannot have a subscription; None if it can."""
        refusal = self.refused(taker, name)
        if refusal is not None:
            return refusal
        machine = self.backend.machine
        bound = machine.check(name)
        for other in self._names.get(taker, ()):
            meaning = machine.meaning(other)
            if other != name and meaning is not None and meaning.k == bound.k:
                return f"the client is subscribed to the same as {other!r}"
        return None

    def subscribe(self, taker: Client, name: str, subscription: Subscription) -> None:
        self.results.expected()
        self._takers.setdefault(name, {})[taker] = subscription
        self._names.setdefault(taker, {})[name] = None

    def unsubscribe(self, taker: Client, name: str) -> None:
        takers = self._takers.get(name, {})
        if takers.pop(taker, None) is None:
            return
        if not takers:
            del self._takers[name]
            self._topics.pop(name, None)
            self._bytes.pop(name, None)
        names = self._names[taker]
        del names[name]
        if not names:
            del self._names[taker]

    def forget(self, taker: Client) -> None:
        for name in tuple(self._names.get(taker, ())):
            self.unsubscribe(taker, name)

    def may_receive(self, taker: Recipient, name: str) -> bool:
        """Whether the rules of access let a client have what it is subscribed to."""
        if self._defined != self.backend.definition_changes:
            self._defined = self.backend.definition_changes
            self._topics.clear()
        topic = self._topics.get(name)
        if topic is None:
            meaning = self.backend.machine.meaning(name)
            topic = self._topics[name] = name if meaning is None else meaning.topic
        return taker.may_receive(topic)

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────

    def dispatch(self, place: int, notice: Notice, result: Result) -> None:
        """A result that a notice has brought: to every client here that wants it."""
        critical = result.priority >= CRITICAL
        for name in self.backend.machine.names(result.k):
            takers = self._takers.get(name)
            if takers:
                self._bytes[name] = self._bytes.get(name, 0) + len(name) + len(result.payload)
                frames = Frames(self.publication(name, place, notice, result), 0)
                for taker, subscription in takers.items():
                    if place > subscription.since and self.may_receive(taker, name):
                        granted = grant_of_results(subscription)
                        taker.delivery.hand_in_result(place, critical, granted, frames)

    def publication(self, name: str, place: int, notice: Notice, result: Result) -> Publication:
        """A result as it is sent to those who subscribed under a name."""
        return Publication(
            name,
            result.payload,
            1,
            "",
            payload_format=1,
            content_type="application/json",
            user_properties=self._attributes(place, notice, result),
        )

    def _attributes(self, place: int, notice: Notice, result: Result) -> tuple[tuple[str, str], ...]:
        priority = (("priority", str(result.priority)),) if result.priority else ()
        return (
            ("specversion", "1.0"),
            (RESULT_VERSION, RESULT.text),
            ("id", f"{notice.tick}-{notice.first + result.ordinal}"),
            ("source", f"/{self._network}/channels/{result.channel}"),
            ("type", EVENT_TYPE),
            ("time", _written(notice.at_us)),
            ("channel", result.channel),
            ("execution", str(result.execution)),
            (POSITION, str(place)),
            *priority,
        )

    def meant(self, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        """k → (name, channel in small letters) of the names that mean something now, whether this broker holds that yet
        or not; of several for one k the first."""
        found: dict[str, tuple[str, str]] = {}
        for name in names:
            meaning = self._meaning(name)
            if meaning is not None:
                found.setdefault(meaning.k, (name, meaning.channel.lower()))
        return found

    def _meaning(self, name: str) -> Bound | None:
        machine = self.backend.machine
        meaning = machine.meaning(name)
        if meaning is None:
            with suppress(FilterInvalid):  # there is no such channel
                return machine.check(name)
        return meaning


@lru_cache(16)  # many results are of one tick
def _written(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
