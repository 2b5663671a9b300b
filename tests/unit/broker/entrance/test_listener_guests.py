"""Clients that say where they are at home, at the door: who is told what, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket, PingReqPacket, PingRespPacket, PublishPacket

from tests.unit.broker.harness import OWN, Door, until
from tests.unit.broker.talk import LASTING, nothing_more
from tocsin.broker.entrance.redirects import Redirects
from tocsin.config import Limits
from tocsin.core.coordination.participant.signals import GuestCame, GuestWent
from tocsin.core.machine import Event
from tocsin.core.survival.homes import SERVERS_TOPIC

GUEST = ConnectPacket(
    "c", clean_start=False, session_expiry_interval=LASTING, user_properties=[("home", "there")]
)


class Guestbook:
    """A door with visitors, and what the participant is told of them."""

    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.door = Door(Limits(), redirects=Redirects(OWN, self.posted.append, lambda scheme: ["a:1"]))

    def kinds(self) -> list[type[Event]]:
        return [type(each) for each in self.posted]


async def test_a_guest_is_sent_home_and_is_none_any_more() -> None:
    book = Guestbook()
    async with book.door as door:
        guest = await door.peer(connect=GUEST)
        door.listener.tell_visitors()
        assert (await guest.receive(PublishPacket)).topic == SERVERS_TOPIC
        door.parts.clients.send_home("c", "there:1883")
        word = await guest.receive(DisconnectPacket)
        assert (int(word.reason_code), word.server_reference) == (0x9C, "there:1883")
        assert await guest.closed()
        assert book.kinds() == [GuestCame, GuestWent]
        door.parts.clients.send_home("c", "there:1883")
        door.listener.tell_visitors()


async def test_a_reconnecting_guest_gets_no_redirect_before_its_connack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    book = Guestbook()
    async with book.door as door:
        before = await door.peer(connect=GUEST)
        before.send(PingReqPacket())  # it knows that it is in
        await before.receive(PingRespPacket)
        entry = door.parts.session_entry
        take, go_on = entry.take, asyncio.Event()

        async def take_later(*arguments: Any, **options: Any) -> Any:
            await go_on.wait()
            return await take(*arguments, **options)

        monkeypatch.setattr(entry, "take", take_later)
        guest = await door.peer(connect=GUEST, accepted=False)
        assert int((await before.first(DisconnectPacket)).reason_code) == 0x8E
        assert book.kinds() == [GuestCame, GuestWent], "the participant does not count on it meanwhile"
        door.listener.tell_visitors()
        door.parts.clients.send_home("c", "there:1883")
        door.parts.clients.ask_anew("c")
        go_on.set()
        assert (await guest.receive(ConnAckPacket)).session_present
        await nothing_more(guest)
        assert book.kinds() == [GuestCame, GuestWent, GuestCame]


async def test_one_that_gives_up_before_it_is_in_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    book = Guestbook()
    async with book.door as door:
        await door.peer(connect=GUEST)
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def take(*arguments: Any, **options: Any) -> Any:
            await never

        monkeypatch.setattr(door.parts.session_entry, "take", take)
        guest = await door.peer(connect=GUEST, accepted=False)
        await until(lambda: len(book.posted) == 2)
        guest.close()
        await until(lambda: door.listener.clients == 0)
        assert book.kinds() == [GuestCame, GuestWent]
        door.listener.tell_visitors()
        never.cancel()
