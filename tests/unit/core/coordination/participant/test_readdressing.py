"""A broker listens at its new address first, tells others then, and stays where it is while that cannot be."""

from __future__ import annotations

import msgspec

from tests.unit.core.coordination.histories import NORTH
from tests.unit.core.coordination.one_broker import of
from tocsin.core.coordination.participant.readdressing import (
    Addresses,
    Announce,
    CannotListen,
    ListenAt,
    Listens,
    Looked,
    Readdressing,
)
from tocsin.core.machine import Effect, Event, Say

ELSEWHERE = msgspec.structs.replace(NORTH, host="127.0.0.9")


def at(host: str, info: object = NORTH) -> Addresses:
    assert info in (NORTH, ELSEWHERE)
    found = NORTH if info is NORTH else ELSEWHERE
    return Addresses({"port": (host, 1883), "link_port": (host, 1884)}, found)


BEFORE, AFTER = at("127.0.0.1"), at("127.0.0.9", ELSEWHERE)


class Broker:
    def __init__(self) -> None:
        self.machine = Readdressing(BEFORE)

    def handle(self, event: Event) -> list[Effect]:
        return self.machine.handle(event, 0)


def test_a_broker_listens_at_its_new_address_before_others_hear_of_it() -> None:
    broker = Broker()
    assert broker.handle(Looked(addresses=AFTER)) == [ListenAt(listening=AFTER.listening)]
    assert broker.handle(Looked(addresses=AFTER)) == [], "it is about to"
    assert broker.machine.addresses == BEFORE
    effects = broker.handle(Listens())
    assert of(Announce, effects) == [Announce(info=ELSEWHERE)]
    assert broker.machine.addresses == AFTER and broker.handle(Looked(addresses=AFTER)) == []


def test_an_address_that_others_alone_use_needs_no_other_listener() -> None:
    broker = Broker()
    effects = broker.handle(Looked(addresses=at("127.0.0.1", ELSEWHERE)))
    assert of(Announce, effects) == [Announce(info=ELSEWHERE)] and not of(ListenAt, effects)


def test_a_name_that_resolves_elsewhere_is_told_to_nobody_again() -> None:
    broker = Broker()
    broker.handle(Looked(addresses=at("127.0.0.9")))
    effects = broker.handle(Listens())
    assert [type(each) for each in effects] == [Say]


def test_only_listeners_that_moved_are_opened_again() -> None:
    broker = Broker()
    partly = Addresses({"port": ("127.0.0.9", 1883), "link_port": ("127.0.0.1", 1884)}, NORTH)
    assert broker.handle(Looked(addresses=partly)) == [ListenAt(listening={"port": ("127.0.0.9", 1883)})]


def test_a_listener_that_comes_or_goes_in_the_settings_changes_nothing() -> None:
    broker = Broker()
    other = Addresses({"port": ("127.0.0.1", 1883), "tls_port": ("127.0.0.1", 8883)}, NORTH)
    assert broker.handle(Looked(addresses=other)) == []
    assert broker.machine.addresses == BEFORE


def test_an_address_that_cannot_be_found_changes_nothing_and_is_said_once() -> None:
    broker = Broker()
    (said,) = of(Say, broker.handle(Looked(addresses=None, problem="no way out")))
    assert said.level == "warning" and "no way out" in (broker.machine.problem or "")
    assert broker.handle(Looked(addresses=None, problem="no way out")) == []
    assert broker.handle(Looked(addresses=BEFORE)) == [] and broker.machine.problem is None


def test_a_broker_that_cannot_listen_elsewhere_stays_and_tries_again() -> None:
    broker = Broker()
    broker.handle(Looked(addresses=AFTER))
    effects = broker.handle(CannotListen(problem="not here yet"))
    assert [type(each) for each in effects] == [Say] and broker.machine.addresses == BEFORE
    assert "not here yet" in (broker.machine.problem or "")
    assert of(ListenAt, broker.handle(Looked(addresses=AFTER)))
    assert of(Announce, broker.handle(Listens())) and broker.machine.problem is None
