"""Clients that prove with a certificate who they are: their names, and when they have to go. Over real TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from mqtt5 import ConnectPacket, DisconnectPacket
from structlog.testing import capture_logs

from tests.client_authority import ClientAuthority, Issued
from tests.unit.broker.guarded import GuardedDoor
from tests.unit.broker.harness import DEADLINE_S, Peer
from tests.unit.broker.talk import nothing_more
from tocsin.config import Access, Settings, Tls
from tocsin.errors import OperatorError
from tocsin.runtime.security.client_certificates import Trust

SERVER = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
EMAIL, DNS = x509.RFC822Name("ann@example.org"), x509.DNSName("press-1.example.org")
URI = x509.UniformResourceIdentifier("urn:dev:17")


class Plant:
    """A broker that lets in who has a certificate, and two authorities."""

    def __init__(self, directory: Path) -> None:
        self.one, self.two = ClientAuthority(directory, "one"), ClientAuthority(directory, "two")
        self.ca, self.crl = directory / "ca.pem", directory / "crl.pem"
        self.believe(self.one, self.two)
        self.own = self.one.issue("localhost", names=SERVER)
        self.door: GuardedDoor

    def believe(self, *authorities: ClientAuthority) -> None:
        self.ca.write_bytes(b"".join(each.pem for each in authorities))

    def revoke(self, *certificates: Issued, **options: Any) -> None:
        self.crl.write_bytes(self.one.revoked(*certificates, **options) + self.two.revoked())

    @asynccontextmanager
    async def open(self, **tls: Any) -> AsyncIterator[GuardedDoor]:
        files = Tls(
            certificate=str(self.own.path),
            key=str(self.own.path),
            client_ca=str(self.ca),
            client_certificates="required",
            **tls,
        )
        settings = Settings(tls=files, access=Access(anonymous="never"))
        async with GuardedDoor(settings) as door:
            self.door = door
            yield door

    def context(self, certificate: Issued) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.one.pem.decode())
        context.load_cert_chain(certificate.path)
        return context

    async def connect(self, certificate: Issued, client_id: str = "c") -> tuple[Peer, int]:
        return await self.door.tls_peer(self.context(certificate), ConnectPacket(client_id))

    async def refused(self, certificate: Issued) -> bool:
        """Whether TLS itself does not let it in."""
        try:
            peer, _ = await self.connect(certificate, "refused")
        except (ssl.SSLError, ConnectionError):
            return True
        peer.close()
        return False

    def user(self, client_id: str = "c") -> str:
        return self.door.listener.register.who(self.door.listener._clients[client_id]).user


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    return Plant(tmp_path)


async def told(peer: Peer) -> tuple[int, str]:
    goodbye = await peer.receive(DisconnectPacket)
    assert await peer.closed()
    return int(goodbye.reason_code), goodbye.reason_str or ""


@pytest.mark.parametrize(
    ("kind", "user"),
    [
        ("common-name", "press-1"),
        ("email", "ann@example.org"),
        ("dns", "press-1.example.org"),
        ("uri", "urn%3Adev%3A17"),
    ],
)
async def test_the_setting_says_which_name_is_the_user(plant: Plant, kind: str, user: str) -> None:
    async with plant.open(client_name=kind):
        _, code = await plant.connect(plant.one.issue("press-1", names=[EMAIL, DNS, URI]))
        assert code == 0 and plant.user() == user


@pytest.mark.parametrize(
    ("kind", "common_names", "names"),
    [
        ("common-name", ("a", "b"), ()),
        ("common-name", (), (DNS,)),
        ("email", ("a",), ()),
        ("email", ("a",), (EMAIL, x509.RFC822Name("ben@example.org"))),
        ("dns", ("a",), (x509.DNSName("*.example.org"),)),
        ("dns", ("a",), (x509.DNSName("*.example.org"), DNS)),
        ("uri", ("a",), (DNS,)),
    ],
)
async def test_two_names_or_none_are_none(
    plant: Plant, kind: str, common_names: tuple[str, ...], names: tuple[x509.GeneralName, ...]
) -> None:
    async with plant.open(client_name=kind):
        certificate = plant.one.issue(*common_names, names=names)
        with capture_logs() as logs:
            _, code = await plant.connect(certificate)
        assert code == 0x87
        (refused,) = [each for each in logs if each["event"] == "client refused"]
        assert "tls.client_name" in refused["reason"]


async def test_a_revoked_certificate_lets_nobody_in_and_who_is_in_goes(plant: Plant) -> None:
    good, bad = plant.one.issue("good"), plant.one.issue("bad")
    plant.revoke()
    async with plant.open(client_crl=str(plant.crl)) as door:
        stays, _ = await plant.connect(good, "good")
        goes, _ = await plant.connect(bad, "bad")
        await asyncio.to_thread(plant.revoke, bad)
        assert await told(goes) == (0x87, "the client's certificate was revoked")
        await nothing_more(stays)
        assert await plant.refused(bad)
        assert not await plant.refused(good)
        assert door.listener.clients >= 1


@pytest.mark.parametrize(
    "content", [b"", b"no list", b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"]
)
async def test_a_list_that_cannot_be_used_changes_nothing(plant: Plant, content: bytes) -> None:
    good, bad = plant.one.issue("good"), plant.one.issue("bad")
    plant.revoke(bad)
    async with plant.open(client_crl=str(plant.crl)) as door:
        peer, _ = await plant.connect(good, "good")
        await asyncio.to_thread(plant.crl.write_bytes, content)
        await asyncio.to_thread(door.guard.look)
        await nothing_more(peer)
        assert await plant.refused(bad) and not await plant.refused(good)


async def test_a_list_does_not_take_the_place_of_a_newer_one(plant: Plant) -> None:
    bad = plant.one.issue("bad")
    plant.revoke(bad)
    async with plant.open(client_crl=str(plant.crl)) as door:
        with capture_logs() as logs:
            await asyncio.to_thread(plant.revoke, days_old=4)
            await asyncio.to_thread(door.guard.look)
        assert any("the one in use" in each.get("problem", "") for each in logs)
        assert await plant.refused(bad)
        await asyncio.to_thread(plant.revoke, days_old=2)
        await asyncio.to_thread(door.guard.look)
        assert not await plant.refused(bad), "the authority may take a revocation back"


async def test_lists_with_numbers_are_compared_by_number_not_by_date(plant: Plant) -> None:
    bad = plant.one.issue("bad")
    plant.revoke(bad, number=8, days_old=3)
    async with plant.open(client_crl=str(plant.crl)) as door:
        with capture_logs() as logs:
            await asyncio.to_thread(plant.revoke, number=7, days_old=2)
            await asyncio.to_thread(door.guard.look)
        assert any("the one in use of number 8" in each.get("problem", "") for each in logs)
        assert await plant.refused(bad), "its clock was wrong when it was made"
        await asyncio.to_thread(plant.revoke, number=9, days_old=4)
        await asyncio.to_thread(door.guard.look)
        assert not await plant.refused(bad)


async def test_a_revocation_list_from_the_future_is_reported_and_replaceable(plant: Plant) -> None:
    good = plant.one.issue("good")
    plant.revoke()
    async with plant.open(client_crl=str(plant.crl)) as door:
        await asyncio.to_thread(plant.revoke, days_old=-0.5)
        await asyncio.to_thread(door.guard.look)
        assert "begins on" in (door.guard.problem() or "")
        assert await plant.refused(good)
        await asyncio.to_thread(plant.revoke)
        await asyncio.to_thread(door.guard.look)
        assert door.guard.problem() is None and not await plant.refused(good)


async def test_of_two_lists_of_one_authority_the_newest_counts(plant: Plant) -> None:
    bad = plant.one.issue("bad")
    plant.revoke()
    async with plant.open(client_crl=str(plant.crl)):
        goes, _ = await plant.connect(bad, "bad")
        lists = [plant.one.revoked(bad, days_old=1), plant.two.revoked(), plant.one.revoked(days_old=2)]
        await asyncio.to_thread(plant.crl.write_bytes, b"".join(lists))
        assert await told(goes) == (0x87, "the client's certificate was revoked")
        assert await plant.refused(bad)


async def test_an_authority_that_is_revoked_vouches_for_nobody(plant: Plant, tmp_path: Path) -> None:
    between = ClientAuthority(tmp_path, "between", above=plant.one)
    below = ClientAuthority(tmp_path, "below", above=between)
    plant.believe(plant.one, plant.two, between, below)

    def revoke(*certificates: Issued) -> None:
        plant.crl.write_bytes(
            plant.one.revoked(*certificates) + plant.two.revoked() + between.revoked() + below.revoked()
        )

    revoke()
    certificate, deep = between.issue("a", chain=[between]), below.issue("b", chain=[below, between])
    async with plant.open(client_crl=str(plant.crl)):
        stays, _ = await plant.connect(plant.one.issue("c"), "c")
        goes, code = await plant.connect(certificate, "a")
        goes_too, code_too = await plant.connect(deep, "b")
        assert (code, code_too) == (0, 0)
        await asyncio.to_thread(revoke, between)
        for peer in (goes, goes_too):
            assert (await told(peer))[0] == 0x87
        await nothing_more(stays)
        assert [(await plant.connect(each, "again"))[1] for each in (certificate, deep)] == [0x87, 0x87]


async def test_an_authority_without_a_list_is_told_of(plant: Plant, tmp_path: Path) -> None:
    between = ClientAuthority(tmp_path, "between", above=plant.one)
    plant.believe(plant.one, between)
    plant.crl.write_bytes(between.revoked())
    async with plant.open(client_crl=str(plant.crl)) as door:
        assert door.guard.problem() is None, "one may issue nothing but the authority between"
        await asyncio.to_thread(plant.believe, plant.one, plant.two, between)
        await asyncio.to_thread(door.guard.look)
        assert "has no list of revoked certificates of CN=two" in (door.guard.problem() or "")
        assert await plant.refused(plant.two.issue("b"))


async def test_why_there_was_no_tls_is_in_the_log(plant: Plant) -> None:
    with capture_logs() as logs:
        async with plant.open():
            assert await plant.refused(plant.one.issue("a", seconds=-60))
            assert await plant.refused(plant.one.issue("a", seconds=-60))
    said = [each for each in logs if each["event"] == "no TLS with a peer"]
    assert [each["log_level"] for each in said] == ["info", "debug"], "one line for many"
    assert "certificate has expired" in said[0]["problem"] and said[0]["address"] == "127.0.0.1"


async def test_an_authority_can_be_removed_before_its_list_is(plant: Plant) -> None:
    plant.revoke()
    async with plant.open(client_crl=str(plant.crl)) as door:
        stays, _ = await plant.connect(plant.one.issue("a"), "a")
        goes, _ = await plant.connect(plant.two.issue("b"), "b")
        await asyncio.to_thread(plant.believe, plant.one)
        assert (await told(goes))[0] == 0x87
        await nothing_more(stays)
        assert await plant.refused(plant.two.issue("b")) and not await plant.refused(plant.one.issue("a"))
        assert door.guard.problem() is None


async def test_an_authority_that_is_believed_no_more_takes_its_clients_along(plant: Plant) -> None:
    async with plant.open():
        stays, _ = await plant.connect(plant.one.issue("a"), "a")
        goes, _ = await plant.connect(plant.two.issue("b"), "b")
        await asyncio.to_thread(plant.believe, plant.one)
        code, words = await told(goes)
        assert code == 0x87 and "believed no more" in words
        await nothing_more(stays)
        assert await plant.refused(plant.two.issue("b"))


async def test_a_client_vouched_for_by_an_intermediate_presents_its_certificate_again(
    plant: Plant, tmp_path: Path
) -> None:
    between = ClientAuthority(tmp_path, "between", above=plant.one)
    certificate = between.issue("a", chain=[between])
    async with plant.open():
        peer, code = await plant.connect(certificate, "a")
        assert code == 0
        await asyncio.to_thread(plant.believe, plant.one)
        assert (await told(peer))[0] == 0x98
        peer, code = await plant.connect(certificate, "a")
        assert code == 0 and plant.user("a") == "a"


async def test_a_certificate_that_ends_takes_its_client_along(plant: Plant) -> None:
    async with plant.open():
        peer, code = await plant.connect(plant.one.issue("a", seconds=2))
        assert code == 0
        async with asyncio.timeout(DEADLINE_S):
            assert await told(peer) == (0x87, "the client's certificate has ended")


def test_a_list_that_would_keep_everybody_out_is_refused(plant: Plant, tmp_path: Path) -> None:
    def settings() -> Tls:
        return Tls(client_ca=str(plant.ca), client_certificates="required", client_crl=str(plant.crl))

    plant.revoke(seconds=-60)
    with pytest.raises(OperatorError, match="ended on"):
        Trust(settings())
    plant.crl.write_bytes(ClientAuthority(tmp_path, "stranger").revoked())
    with pytest.raises(OperatorError, match="not of an authority"):
        Trust(settings())
    plant.crl.unlink()
    with pytest.raises(OperatorError, match="cannot be read"):
        Trust(settings())
    plant.revoke()
    Trust(settings())


async def test_a_list_that_ends_keeps_newcomers_out_and_is_told_of(plant: Plant) -> None:
    good = plant.one.issue("good")
    plant.revoke(seconds=6)
    with capture_logs() as logs:
        async with plant.open(client_crl=str(plant.crl)) as door:
            stays, _ = await plant.connect(good, "good")
            assert door.guard.problem() is None, "it is good for now"
            async with asyncio.timeout(DEADLINE_S):
                while door.guard.problem() is None:
                    await asyncio.sleep(0.05)
            await nothing_more(stays)
            assert await plant.refused(good), "nobody knows whether it was revoked"
            assert "nobody is let in" in (door.listener.guard.problem() or "")
            now_s = asyncio.get_running_loop().time()
            door.guard._warn(now_s)
            door.guard._warn(now_s + 1.0)
            door.guard._warn(now_s + 3_601.0)  # an hour, and more than what a float rounds off
            await asyncio.to_thread(plant.revoke)
            await asyncio.to_thread(door.guard.look)
            assert door.guard.problem() is None and not await plant.refused(good)
    warned = [each["problem"] for each in logs if each["event"] == "client certificates"]
    ended = [each for each in warned if "ended on" in each]
    assert len(ended) >= 2 and "tls.client_crl" in ended[0]
