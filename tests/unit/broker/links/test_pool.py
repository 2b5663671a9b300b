"""Links come with routes, and outlast them for a while."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.harness import OWN
from tocsin.broker.links import pool as module
from tocsin.broker.links.link import LinkWatcher
from tocsin.broker.links.pool import LinkPool
from tocsin.model.network import BrokerInfo, Role

ONE = BrokerInfo("one", "north", Role.EDGE, "127.0.0.1", 1)
TWO = BrokerInfo("two", "north", Role.EDGE, "127.0.0.1", 2)


class Link:
    """A link that goes nowhere."""

    def __init__(self, info: BrokerInfo, quiet: bool = False) -> None:
        self.info = info
        self.quiet = quiet
        self.opened = self.closed = self.up = self.tried = False
        self.pinged = self.late = 0

    def open(self) -> None:
        self.opened = True

    def close(self) -> None:
        self.closed = True

    def ping(self) -> None:
        self.pinged += 1


def make() -> tuple[LinkPool, list[Link]]:
    made: list[Link] = []

    def link(info: BrokerInfo, quiet: bool, watcher: LinkWatcher) -> Link:
        made.append(Link(info, quiet=quiet))
        return made[-1]

    return LinkPool(link), made  # type: ignore[arg-type]


async def test_a_quiet_link_is_replaced_when_a_route_comes() -> None:
    peers, made = make()
    peers.want([ONE, TWO], quiet={"one"})
    assert [link.quiet for link in made] == [True, False]
    peers.want([ONE, TWO], quiet={"two"})
    assert made[0].closed and not made[1].closed
    assert len(made) == 3 and not made[2].quiet
    peers.close()


async def test_a_link_outlasts_its_routes_and_is_used_again() -> None:
    peers, made = make()
    peers.want((ONE, TWO))
    peers.want((TWO,))
    assert [link.closed for link in made] == [False, False]
    peers.want((ONE, TWO))
    assert len(made) == 2 and not peers._leaving
    peers.close()
    assert all(link.closed for link in made)


async def test_a_link_that_nobody_needs_is_closed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_S", 0.0)
    peers, made = make()
    peers.want((ONE,))
    peers.want(())
    await asyncio.sleep(0.01)
    assert made[0].closed and not peers.links


async def test_a_peer_that_moved_gets_another_link() -> None:
    peers, made = make()
    peers.want((ONE,))
    peers.want((BrokerInfo("one", "north", Role.EDGE, "127.0.0.1", 9),))
    assert [link.closed for link in made] == [True, False]
    peers.close()


async def test_a_needed_link_that_was_tried_and_is_down_fails() -> None:
    peers, made = make()
    peers.want((ONE, OWN))
    made[1].tried = made[1].up = True
    assert peers.failing() == []
    made[0].tried = True
    assert [link.info for link in peers.failing()] == [ONE]
    peers.want((OWN,))
    assert peers.failing() == []
    peers.close()


async def test_links_are_seen_as_they_are() -> None:
    peers, made = make()
    peers.want((ONE, TWO))
    made[0].up = True
    peers.link_measured("one", 7_000)
    peers.link_measured("two", 9_000)  # before it broke
    assert (peers.seen("").down, peers.seen("").delays) == (("two",), {"one": 7_000})
    peers.want((ONE,))
    assert peers.seen("").down == ()  # it is not needed any more
    peers.close()


async def test_peers_are_asked_how_far_they_are_and_have_time_to_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MEASURE_S", 0.0)
    peers, made = make()
    peers.want((ONE, TWO))
    answered = asyncio.Event()
    peers.measure(lambda: None)
    peers.measure(answered.set)
    await asyncio.wait_for(answered.wait(), 10)
    assert [link.pinged for link in made] == [2, 2]
    peers.close()


async def test_what_must_not_overtake_messages_waits_for_links_that_are_being_made() -> None:
    peers, _ = make()
    done: list[int] = []
    peers.when_settled(done.append, 0)
    assert done == [0]
    peers.want((ONE, TWO))
    peers.when_settled(done.append, 1)
    peers.link_known("one")
    peers.when_settled(done.append, 2)
    assert done == [0]
    peers.link_known("two")
    assert done == [0, 1, 2]
    peers.link_known("two")  # it went down: that is no fresh one
    peers.when_settled(done.append, 3)
    assert done == [0, 1, 2, 3]
    peers.close()


async def test_a_link_that_cannot_be_made_is_not_waited_for_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRESH_S", 0.0)
    peers, _ = make()
    peers.want((ONE,))
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    peers.when_settled(done.set_result, 1)
    async with asyncio.timeout(5):
        assert await done == 1
    peers.close()


async def test_nothing_waits_any_more_when_the_broker_stops() -> None:
    peers, _ = make()
    peers.want((ONE,))
    done: list[int] = []
    peers.when_settled(done.append, 1)
    peers.close()
    assert done == [1]
