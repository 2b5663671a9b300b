"""A broker goes on listening where its machine is: doors are opened at the new address, and closed at the old one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, TopicFilter

from tests.unit.broker.harness import Door, Peer, until
from tocsin.broker.entrance import readdressing as module
from tocsin.broker.entrance.listener import listening_socket
from tocsin.broker.entrance.readdressing import Mover
from tocsin.config import Limits
from tocsin.core.coordination.participant.readdressing import Addresses, At
from tocsin.errors import OperatorError, PortTaken
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.mqtt.connect import V5

INFO = BrokerInfo("north-1", "north", Role.EDGE, "127.0.0.2", 1)
MOVED = msgspec.structs.replace(INFO, host="127.0.0.3")


class Place:
    """A site whose address a test gives; ``taken`` ports cannot be listened on."""

    is_fixed = False

    def __init__(self) -> None:
        self.addresses = self.now = Addresses({"port": ("127.0.0.2", 1_883)}, INFO)
        self.lost = self.taken = False
        self.looks = 0

    async def look(self) -> Addresses:
        self.looks += 1
        if self.lost:
            raise OperatorError("there is no way out", "Plug it in")
        return self.now

    def begin(self) -> Any:
        raise AssertionError("it listens already")

    def listen(self, at: Mapping[str, At]) -> Any:
        if self.taken:
            raise PortTaken(*at["port"], "broker north-1", "port")
        return dict(at)


class Moving:
    """A broker that moves."""

    def __init__(self) -> None:
        self.place = Place()
        self.opened: list[Any] = []
        self.announced: list[BrokerInfo] = []
        self.mover = Mover(self.place, "test", self._open, self.announced.append)

    async def _open(self, sockets: Any) -> None:
        self.opened.append(sockets)

    async def looked(self) -> None:
        seen = self.place.looks
        await until(lambda: self.place.looks > seen + 1)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.001)


@pytest.mark.usefixtures("at_once")
async def test_a_moved_broker_opens_its_doors_there_and_tells_the_network_once() -> None:
    moving = Moving()
    running = asyncio.create_task(moving.mover.run())
    await moving.looked()
    assert not moving.opened and not moving.announced
    moving.place.now = Addresses({"port": ("127.0.0.3", 1_883)}, MOVED)
    await until(lambda: bool(moving.announced))
    await moving.looked()
    assert moving.opened == [{"port": ("127.0.0.3", 1_883)}] and moving.announced == [MOVED]
    assert moving.place.addresses == moving.place.now, "a standby that takes a place begins there"
    running.cancel()


@pytest.mark.usefixtures("at_once")
async def test_a_broker_says_why_it_is_not_where_it_should_be() -> None:
    moving = Moving()
    running = asyncio.create_task(moving.mover.run())
    moving.place.lost = True
    await until(lambda: "no way out" in (moving.mover.problem or ""))
    moving.place.lost, moving.place.taken = False, True
    moving.place.now = Addresses({"port": ("127.0.0.3", 1_883)}, MOVED)
    await until(lambda: "port is taken" in (moving.mover.problem or ""))
    assert not moving.announced
    moving.place.taken = False
    await until(lambda: moving.mover.problem is None and bool(moving.announced))
    running.cancel()


async def test_a_broker_that_cannot_move_never_looks() -> None:
    moving = Moving()
    moving.place.is_fixed = True
    running = asyncio.create_task(moving.mover.run())
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 2 and not running.done()  # nothing but this test and that
    running.cancel()


async def test_clients_of_a_door_that_is_shut_stay() -> None:
    async with Door(Limits()) as broker:
        shut = await broker.listener.open(listening_socket("127.0.0.3", broker.port, "north-1"))
        anna = Peer(*await asyncio.open_connection("127.0.0.3", broker.port), V5)
        broker.look_after(anna)
        anna.send(ConnectPacket("anna", clean_start=True))
        await anna.receive(ConnAckPacket)
        shut()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.3", broker.port)
        await anna.subscribe(TopicFilter("a"))
        assert broker.listener.clients == 1


async def test_links_come_in_by_the_last_door_alone() -> None:
    async with Door(Limits()) as broker:
        broker.link_listener.open(listening_socket("127.0.0.3", broker.link_port, "north-1"))
        await until(lambda: broker._links.fileno() < 0)
        _, writer = await asyncio.open_connection("127.0.0.3", broker.link_port)
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", broker.link_port)
        writer.close()
