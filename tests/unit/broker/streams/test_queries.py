"""A local backup knows the streams of its primary's queries, and lends them to the first client that asks."""

from __future__ import annotations

from typing import Any

from tocsin.broker.quality.requests import Requests
from tocsin.broker.streams.queries import Queries
from tocsin.core.coordination.participant.signals import QuerySetKnown, StreamJoined, StreamLeft
from tocsin.core.filters import ListingFilter, QueryFilter, read_filter
from tocsin.core.forwarding.table import ForwardingTable, Subscription
from tocsin.model.network import BrokerInfo, Role
from tocsin.model.stream import LISTING

LAMPS = "$query/kind = 'lamp'"
LISTED = "$streams/kind = 'lamp'"


class Client:
    """As far as a query needs one."""

    user = "user"

    def may_receive(self, topic: str) -> bool:
        return True


class Backup:
    """The queries of one broker, and what it asks of the coordinator."""

    def __init__(self) -> None:
        self.asked: dict[str, str] = {}
        self.told: list[tuple[str, bytes]] = []
        self.table: ForwardingTable[Any] = ForwardingTable()
        nothing: Any = None
        self.requests = Requests(
            "net",
            BrokerInfo("north-2", "north", Role.EDGE, "127.0.0.1", 0),
            nothing,
            add=nothing,
            keep=lambda *asked: self.queries.keep_offers(*asked),
            publishers=nothing,
            gone=tuple,
            find=lambda topic: (),
        )
        self.queries = Queries(self.table, self._tell, self._changed, self.requests)
        query, listing = read_filter(LAMPS), read_filter(LISTED)
        assert isinstance(query, QueryFilter) and isinstance(listing, ListingFilter)
        self.query, self.listing = query, listing
        assert listing.id == LISTING + query.id

    def _tell(self, client: object, name: str, payload: bytes) -> None:
        self.told.append((name, payload))

    def _changed(self, added: tuple[tuple[str, str], ...], removed: tuple[str, ...], user: str) -> None:
        for query in removed:
            del self.asked[query]
        self.asked.update(added)

    def prepare(self, primary: str = "north-1", *, wanted: bool = True) -> None:
        self.queries.stand_by(primary, (LAMPS,), wanted=wanted)

    def answer(self, query: str, *topics: str) -> None:
        self.queries.know(QuerySetKnown(query=query, streams={topic: {"kind": "lamp"} for topic in topics}))

    def subscribe(self, wanted: QueryFilter | ListingFilter) -> Any:
        client: Any = Client()
        self.queries.subscribe(client, wanted, Subscription())
        return client

    def gets(self, topic: str) -> bool:
        return bool(self.table.wanted(topic))


def test_only_the_set_is_asked_for_and_once_for_all_primaries() -> None:
    backup = Backup()
    backup.prepare("north-1")
    backup.prepare("north-3")
    assert set(backup.asked) == {backup.listing.id}
    backup.prepare("north-1", wanted=False)
    assert set(backup.asked) == {backup.listing.id}
    backup.prepare("north-3", wanted=False)
    assert not backup.asked and backup.queries.statistics()["standby_queries"] == 0


def test_a_client_has_the_streams_before_the_coordinator_answers() -> None:
    backup = Backup()
    backup.prepare()
    backup.answer(backup.listing.id, "lamps/1")
    backup.subscribe(backup.query)
    assert backup.queries.is_known(backup.query) and backup.gets("lamps/1")
    assert set(backup.asked) == {backup.listing.id, backup.query.id}


def test_lent_streams_follow_the_standby_until_the_answer_comes() -> None:
    backup = Backup()
    backup.prepare()
    backup.answer(backup.listing.id, "lamps/1")
    backup.subscribe(backup.query)
    backup.queries.turn(StreamJoined(query=backup.listing.id, topic="lamps/2", metadata={}))
    backup.queries.turn(StreamLeft(query=backup.listing.id, topic="lamps/1", metadata={}))
    assert backup.gets("lamps/2") and not backup.gets("lamps/1")
    backup.answer(backup.query.id, "lamps/3")
    assert backup.gets("lamps/3") and not backup.gets("lamps/2")
    backup.queries.turn(StreamJoined(query=backup.listing.id, topic="lamps/4", metadata={}))
    assert not backup.gets("lamps/4"), "the answer counts from here on"


def test_a_listing_of_a_client_has_the_set_of_the_standby() -> None:
    backup = Backup()
    backup.prepare()
    backup.answer(backup.listing.id, "lamps/1")
    client = backup.subscribe(backup.listing)
    assert backup.queries.is_known(backup.listing)
    backup.queries.listings.begin(client, LISTED)
    assert len(backup.told) == 1 and b"lamps/1" in backup.told[0][1]
    backup.queries.forget(client)
    assert set(backup.asked) == {backup.listing.id}, "the standby goes on"


def test_a_standby_has_the_set_of_a_client_s_listing() -> None:
    backup = Backup()
    client = backup.subscribe(backup.listing)
    backup.answer(backup.listing.id, "lamps/1")
    backup.prepare()
    backup.subscribe(backup.query)
    assert backup.gets("lamps/1")
    backup.prepare(wanted=False)
    assert backup.listing.id in backup.asked, "the client goes on"
    backup.queries.forget(client)
    assert set(backup.asked) == {backup.query.id}


def test_a_query_without_a_standby_waits_for_its_answer() -> None:
    backup = Backup()
    backup.subscribe(backup.query)
    assert not backup.queries.is_known(backup.query)
