"""Who is here and who is away, as backups are told of it."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from tocsin.broker.client import Client
from tocsin.broker.delivery.client_delivery import DurableDelivery
from tocsin.broker.survival import client_state as module
from tocsin.broker.survival.client_state import ClientState
from tocsin.core.access.rights import Who
from tocsin.core.forwarding.table import Subscription
from tocsin.model.network import Scheme
from tocsin.model.publication import Publication
from tocsin.wire.internal.replication import Bequest, Option, Positions

WILL = Bequest(Publication("t", b"", 0, "c"), 5)


class Attending:
    def __init__(self) -> None:
        self.here = True
        self.session = "uid"
        self.session_epoch = 3
        self.subscriptions = {"x": Subscription(True, 3, 1, False, 9)}
        self.positions: Positions | None = Positions(4)


class Connected:
    """A client's connection."""

    def __init__(self, client_id: str = "c", *, will: Bequest | None = None) -> None:
        self.client_id = client_id
        self.attending = Attending()
        self.delivery = cast(DurableDelivery, self.attending)
        self.epoch = 1
        self.expiry_s = 60
        self._will = will
        self.will_id = "north-1.1.1.will"

    def bequest(self) -> Bequest | None:
        return self._will


class Here:
    def __init__(self, *connections: Connected) -> None:
        self.now = 0.0
        self.present = {each.client_id: each for each in connections}
        self.client_state = ClientState(self, lambda: self.now)
        self.denied: set[tuple[Who, str]] = set()

    def may_publish(self, who: Who, topic: str) -> bool:
        return (who, topic) not in self.denied

    def has_user(self, client_id: str, user: str) -> bool:
        return client_id in self.present

    def scheme(self, connection: Connected) -> Scheme:
        return Scheme.WS

    def who(self, connection: Connected) -> Who:
        return Who("user", connection.client_id)

    def leave(self, client: str, expiry_s: int = 60, will: Bequest | None = None) -> str | None:
        self.present[client].attending.here = False
        forgotten = self.client_state.went(cast(Client, self.present[client]), expiry_s, will)
        del self.present[client]
        return forgotten


def test_who_is_here_is_read_off_its_connection() -> None:
    connection = Connected(will=WILL)
    here = Here(connection)
    state = here.client_state
    head = state.head("c")
    assert head is not None and (head.connected, head.scheme, head.expiry_s) == (True, Scheme.WS, 60)
    assert (head.session, head.owner, head.will) == ("uid", "user", WILL)
    assert list(state.clients()) == ["c"] and list(state.names("c")) == ["x"]
    assert state.option("c", "x") == Option(True, 3, 1, False, 9) and state.option("c", "y") is None
    assert state.positions("c") == Positions(4)
    connection.attending.here = False
    assert list(state.clients()) == [] and state.head("c") is None and state.positions("c") is None


def test_who_is_away_is_as_it_was_when_it_went() -> None:
    connection = Connected(will=WILL)
    here = Here(connection)
    assert here.leave("c") is None
    connection.attending.subscriptions = {}
    head = here.client_state.head("c")
    assert head is not None and (head.connected, head.will) == (False, None)
    assert list(here.client_state.clients()) == ["c"] and list(here.client_state.names("c")) == ["x"]
    assert here.client_state.option("c", "x") is not None and here.client_state.positions("c") == Positions(4)


def test_a_will_that_its_client_may_not_publish_is_left_out() -> None:
    will = Bequest(Publication("t", b"", 0, "c"), 5, owner="user")
    here = Here(Connected(will=will))
    for away in (False, True):
        if away:
            here.leave("c", will=will)
        here.denied.add((Who("user", "c"), "t"))
        head = here.client_state.head("c")
        assert head is not None and head.will is None
        assert list(here.client_state.bequeathing()) == ["c"]
        here.denied.clear()
        head = here.client_state.head("c")
        assert head is not None and head.will == will


def test_another_users_client_does_not_own_what_an_id_left() -> None:
    here = Here(Connected())
    here.leave("c")
    assert not here.client_state.owned_by("c", "mallory") and not here.client_state.owned_by("c", "")
    assert here.client_state.owned_by("c", "user")


def test_who_comes_back_is_here_alone() -> None:
    here = Here(Connected())
    here.leave("c")
    here.present["c"] = Connected(will=WILL)
    assert list(here.client_state.clients()) == ["c"]
    here.client_state.came("c")
    assert len(here.client_state) == 0
    head = here.client_state.head("c")
    assert head is not None and head.connected


def test_an_ended_session_leaves_only_a_waiting_will() -> None:
    here = Here(Connected("a"), Connected("b"))
    here.leave("a", 0)
    here.leave("b", 0, WILL)
    assert list(here.client_state.clients()) == ["b"]
    assert not here.client_state.will_settled("a")
    assert here.client_state.will_settled("b")
    assert list(here.client_state.clients()) == []


def test_a_will_that_is_settled_leaves_the_session() -> None:
    here = Here(Connected())
    here.leave("c", 60, WILL)
    assert here.client_state.will_settled("c") and not here.client_state.will_settled("c")
    head = here.client_state.head("c")
    assert head is not None and head.will is None


def test_a_session_ends_at_its_expiry_or_when_told() -> None:
    here = Here(Connected("a"), Connected("b"), Connected("c"))
    here.leave("a", 10)
    here.leave("b", 10, WILL)
    here.leave("c", 100)
    here.now = 11
    assert list(here.client_state.expired()) == ["a"]
    assert set(here.client_state.clients()) == {"b", "c"}
    assert not here.client_state.gone("c", "another") and not here.client_state.gone("stranger")
    assert here.client_state.gone("c", "uid") and here.client_state.gone("b")
    assert list(here.client_state.clients()) == []


def test_of_too_many_the_first_that_went_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AWAY_MAX", 2)
    here = Here(*(Connected(client) for client in "abc"))
    assert [here.leave(client) for client in "abc"] == [None, None, "a"]
    assert list(here.client_state.clients()) == ["b", "c"]
    here.client_state.forget()
    assert len(here.client_state) == 0


def test_that_a_will_is_settled_is_told_for_a_while() -> None:
    here = Here(Connected("polite"), Connected("dead"))
    here.leave("polite", 0)
    here.leave("dead", 0, msgspec.structs.replace(WILL, record_id="dead.will"))
    assert here.client_state.void("polite") == "north-1.1.1.will"
    assert here.client_state.void("dead") == "", "it waits"
    here.client_state.will_settled("dead")
    assert here.client_state.void("dead") == "dead.will"
    assert list(here.client_state.voided()) == ["polite", "dead"]
    here.now = module.VOID_S + 1
    assert list(here.client_state.voided()) == []
