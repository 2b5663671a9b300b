"""``$streams/<predicate>``: clients that are told which streams satisfy a query, and each change of that.

``core.streams.listing`` decides what each of them is told. The messages are at QoS 0, on the topic that is the
subscription's own name. A client so slow that messages to it were dropped is sent the set again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tocsin.broker.client import Client
from tocsin.core.streams.listing import Listing, ListingEvent, encode_set, encode_turn
from tocsin.model.stream import Metadata


class _Listed:
    """A query whose set somebody here wants."""

    __slots__ = ("listings", "streams")

    def __init__(self) -> None:
        self.listings: dict[tuple[Client, str], Listing] = {}
        self.streams: dict[str, Metadata] | None = None  # None: not known yet


class Listings:
    """The listings of a broker's clients; ``tell`` sends a payload to a client, under the name of a subscription."""

    def __init__(self, tell: Callable[[Client, str, bytes], None]) -> None:
        self._tell = tell
        self._listed: dict[str, _Listed] = {}  # by the query's id
        self._names: dict[Client, dict[str, str]] = {}  # client → name → id
        self._stale: dict[Client, None] = {}  # the clients to be sent the set again

    def __len__(self) -> int:
        return len(self._listed)

    @property
    def subscriptions(self) -> int:
        return sum(map(len, self._names.values()))

    def has(self, query: str) -> bool:
        """Whether a client here asks for the set of this query."""
        return query in self._listed

    def streams(self, query: str) -> Mapping[str, Metadata] | None:
        """The set of a query that a client here asks for; None: nobody does, or it is not known yet."""
        listed = self._listed.get(query)
        return None if listed is None else listed.streams

    def is_known(self, query: str) -> bool:
        listed = self._listed.get(query)
        return listed is not None and listed.streams is not None

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, reader: Client, name: str, query: str) -> bool:
        """Add a listing or start it again; True if nobody here asked for this set before. ``begin`` follows."""
        first = query not in self._listed
        listed = self._listed.setdefault(query, _Listed())
        listed.listings[reader, name] = Listing()
        self._names.setdefault(reader, {})[name] = query
        return first

    def begin(self, reader: Client, name: str) -> None:
        """The client knows that it is subscribed: it is told the set, now or when that is known."""
        query = self._names.get(reader, {}).get(name)
        if query is None:
            return
        listed = self._listed[query]
        listing = listed.listings[reader, name]
        if listed.streams is None:
            listing.begun = True
        else:
            self._begin(reader, name, listing, listed.streams)

    def _begin(self, reader: Client, name: str, listing: Listing, streams: Mapping[str, Metadata]) -> None:
        for payload in encode_set(listing.begin(streams, reader.may_receive)):
            self._tell(reader, name, payload)

    def withdraw(self, reader: Client, name: str) -> str | None:
        """Remove, if it is there; the query's id if nobody here asks for its set any more."""
        names = self._names.get(reader, {})
        query = names.pop(name, None)
        if query is None:
            return None
        if not names:
            del self._names[reader]
            self._stale.pop(reader, None)
        listed = self._listed[query]
        del listed.listings[reader, name]
        if listed.listings:
            return None
        del self._listed[query]
        return query

    def drop(self, reader: Client) -> tuple[str, ...]:
        """Remove all of a client's; the ids of queries for whose set nobody here asks any more."""
        if reader not in self._names:
            return ()
        gone = (self.withdraw(reader, name) for name in tuple(self._names[reader]))
        return tuple(query for query in gone if query is not None)

    def lost(self, reader: Client) -> None:
        """Messages to this client were dropped."""
        if reader in self._names:
            self._stale[reader] = None

    def recover(self, reader: Client) -> None:
        """The client takes messages again."""
        if reader in self._stale:
            del self._stale[reader]
            for name in self._names[reader]:
                self.begin(reader, name)

    def access_changed(self) -> None:
        """The clients' rights to receive have changed."""
        for listed in self._listed.values():
            if listed.streams is not None:
                for (reader, name), listing in listed.listings.items():
                    if listing.begun:
                        for turn in listing.permit(listed.streams, reader.may_receive):
                            self._tell(reader, name, encode_turn(*turn))

    # ── what the coordinator says ───────────────────────────────────────────────────────────────────────────

    def know(self, query: str, streams: Mapping[str, Metadata]) -> None:
        listed = self._listed.get(query)
        if listed is None:
            return
        listed.streams = dict(streams)
        for (reader, name), listing in listed.listings.items():
            if listing.begun:
                self._begin(reader, name, listing, listed.streams)

    def turn(self, word: ListingEvent, query: str, topic: str, metadata: Metadata) -> None:
        """A stream joined, changed or left."""
        listed = self._listed.get(query)
        if listed is None or listed.streams is None:
            return
        if word == "left":
            listed.streams.pop(topic, None)
        else:
            listed.streams[topic] = metadata
        payloads: dict[ListingEvent, bytes] = {}
        for (reader, name), listing in listed.listings.items():
            told = self._word(reader, listing, word, topic, metadata)
            if told is not None and reader not in self._stale:
                if told not in payloads:
                    payloads[told] = encode_turn(told, topic, metadata)
                self._tell(reader, name, payloads[told])

    def _word(
        self, reader: Client, listing: Listing, word: ListingEvent, topic: str, metadata: Metadata
    ) -> ListingEvent | None:
        """The messages for one client about a change."""
        if not listing.begun:
            return None
        match word:
            case "joined":
                return listing.joined(topic, reader.may_receive(topic))
            case "changed":
                return "changed" if listing.changed(topic) else None
            case "left":
                behind = not reader.when_level(lambda: self._caught_up(reader))
                return "left" if listing.left(topic, metadata, behind=behind) else None

    def _caught_up(self, reader: Client) -> None:
        for name, query in self._names.get(reader, {}).items():
            for turn in self._listed[query].listings[reader, name].caught_up():
                if reader not in self._stale:
                    self._tell(reader, name, encode_turn(*turn))
