"""Who may connect, and as what."""

from __future__ import annotations

import pytest

from tocsin.core.access.admission import (
    Admission,
    Admitted,
    Anonymous,
    CheckPassword,
    Origin,
    Policy,
    is_loopback,
    password_refused,
    source_of,
)
from tocsin.core.session.signals import Authenticate, Rejected
from tocsin.model.network import Scheme

ADMISSION = Admission(connections_max=2)


def asks(
    client_id: str = "me",
    username: str | None = None,
    password: bytes | None = None,
    properties: tuple[tuple[str, str], ...] = (("broker", "north-1"), ("cluster", "north")),
) -> Authenticate:
    return Authenticate(client_id=client_id, username=username, password=password, user_properties=properties)


def rejected(asked: Authenticate, connections: int = 0) -> int:
    answer = ADMISSION.decide(asked, connections)
    assert isinstance(answer, Rejected)
    return answer.reason_code


def test_a_client_is_welcome_while_there_is_room() -> None:
    assert ADMISSION.decide(asks(), 1) == Admitted()
    assert rejected(asks(), 2) == 0x89


@pytest.mark.parametrize(
    ("scheme", "plain", "certified", "is_in"),
    [
        (Scheme.MQTT, True, False, True),
        (Scheme.MQTT, True, True, True),  # as it could by itself
        (Scheme.MQTT, False, False, False),
        (Scheme.MQTTS, False, False, True),
        (Scheme.MQTTS, True, True, False),
    ],
)
@pytest.mark.parametrize("username", [None, "ann"])
def test_the_door_is_no_way_around_what_listeners_ask_for(
    username: str | None, scheme: Scheme, plain: bool, certified: bool, is_in: bool
) -> None:
    admission = Admission(2, Policy(users=True, plain=plain, certified=certified))
    origin = Origin("127.0.0.1", scheme=scheme, passed_on=True)
    answer = admission.decide(asks(username=username, password=b"x"), 0, origin)
    assert isinstance(answer, Rejected) is not is_in
    by_itself = Origin("127.0.0.1", scheme=scheme)
    assert not isinstance(admission.decide(asks(username=username, password=b"x"), 0, by_itself), Rejected)


def test_a_drained_broker_sends_newcomers_on_if_another_has_room() -> None:
    admission = Admission(10)
    admission.drains = True
    answer = admission.decide(asks(), 0, refuge=lambda scheme: "other:1883")
    assert isinstance(answer, Rejected)
    assert (answer.reason_code, answer.server_reference) == (0x9C, "other:1883")
    assert admission.decide(asks(), 0) == Admitted(), "nowhere else is worse"
    stays = asks(properties=(("stay", "yes"),))
    assert admission.decide(stays, 0, refuge=lambda scheme: "other:1883") == Admitted()


# ── clients ─────────────────────────────────────────────────────────────────────────────────────────────────

HERE, THERE = Origin("127.0.0.1"), Origin("192.0.2.7")


def decide(policy: Policy, asked: Authenticate, origin: Origin) -> Admitted | CheckPassword | int:
    answer = Admission(10, policy).decide(asked, 0, origin)
    return answer.reason_code if isinstance(answer, Rejected) else answer


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize(
    ("anonymous", "here", "there"),
    [("always", True, True), ("loopback", True, False), ("never", False, False)],
)
def test_without_a_name_the_place_decides(users: bool, anonymous: Anonymous, here: bool, there: bool) -> None:
    policy = Policy(users=users, anonymous=anonymous)
    for asked in (asks(), asks(username=""), asks(password=b"x")):
        assert decide(policy, asked, HERE) == (Admitted() if here else 0x87)
        assert decide(policy, asked, THERE) == (Admitted() if there else 0x87)
        assert decide(policy, asked, Origin()) == (Admitted() if there else 0x87)


@pytest.mark.parametrize("anonymous", ["always", "loopback", "never"])
@pytest.mark.parametrize("origin", [HERE, THERE])
def test_a_name_is_checked_wherever_it_comes_from(anonymous: Anonymous, origin: Origin) -> None:
    policy = Policy(users=True, anonymous=anonymous)
    assert decide(policy, asks(username="bob", password=b"x"), origin) == CheckPassword("bob", b"x")
    assert decide(policy, asks(username="bob"), origin) == CheckPassword("bob", b"")


def test_a_name_that_nobody_can_check_counts_for_nothing() -> None:
    policy = Policy(users=False, anonymous="loopback")
    assert decide(policy, asks(username="bob", password=b"x"), HERE) == Admitted("")
    assert decide(policy, asks(username="bob", password=b"x"), THERE) == 0x87


def test_a_certificate_says_who_it_is_whatever_the_client_says() -> None:
    for policy in (Policy(users=True, anonymous="never"), Policy(anonymous="never")):
        origin = Origin("192.0.2.7", "press-1")
        assert decide(policy, asks(username="bob", password=b"x"), origin) == Admitted("press-1")


def test_the_user_that_links_once_had_is_a_name_like_any_other() -> None:
    asked = asks("$link/north-1", "$link", b"guess")
    assert decide(Policy(users=True, anonymous="never"), asked, THERE) == CheckPassword("$link", b"guess")
    assert decide(Policy(anonymous="never"), asked, THERE) == 0x87


def test_a_refused_password_keeps_its_cause() -> None:
    asked = Authenticate(client_id="me", username="bob", password=b"x", cause="c7")
    assert (password_refused(asked).cause, password_refused(asked).reason_code) == ("c7", 0x86)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.255.3.4", "::1", "::ffff:127.0.0.1"])
def test_addresses_of_this_machine(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", ["", "10.0.0.1", "128.0.0.1", "::2", "::ffff:10.0.0.1", "localhost", "127.1"]
)
def test_addresses_of_other_machines_or_none(address: str) -> None:
    assert not is_loopback(address)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("odd", "odd"),
    ],
)
def test_connections_are_counted_by_machine_or_network(address: str, source: str) -> None:
    assert source_of(address) == source


@pytest.mark.parametrize(
    ("page", "trusted"),
    [
        (None, True),
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:8080", True),
        ("https://plant.example", True),
        ("http://plant.example", False),
        ("https://evil.example", False),
        ("https://localhost.evil.example", False),
        ("null", False),
        ("http://[", False),
        ("", False),
    ],
)
def test_only_a_trusted_page_may_use_the_local_proof(page: str | None, trusted: bool) -> None:
    here = Origin("127.0.0.1", page=page)
    policy = Policy(anonymous="loopback", origins=("https://plant.example",))
    answer = Admission(10, policy).decide(asks("c"), 0, here)
    assert isinstance(answer, Admitted if trusted else Rejected)
    if isinstance(answer, Rejected):
        assert answer.reason_code == 0x87 and "access.origins" in answer.reason
    every = Policy(anonymous="loopback", origins=("*",))
    assert isinstance(Admission(10, every).decide(asks("c"), 0, here), Admitted)


def test_a_page_may_prove_a_name_like_any_client() -> None:
    policy = Policy(users=True, anonymous="loopback")
    asked = Authenticate(client_id="c", username="alice", password=b"p")
    answer = Admission(10, policy).decide(asked, 0, Origin("127.0.0.1", page="https://evil.example"))
    assert isinstance(answer, CheckPassword)


# ── accounts ────────────────────────────────────────────────────────────────────────────────────────────────

REGISTERS = Policy(registers=True, users=True, anonymous="never")
ABOUT_ACCOUNTS = Authenticate(client_id="me", username="$account", password=None, accounts=True)


@pytest.mark.parametrize(
    ("origin", "is_in"),
    [
        (Origin("192.0.2.1", scheme=Scheme.MQTTS), True),
        (Origin("192.0.2.1", scheme=Scheme.WSS, page="https://elsewhere.example"), True),
        (Origin("127.0.0.1"), True),
        (Origin("127.0.0.1", scheme=Scheme.WS, page="http://localhost:8000"), True),
        (Origin("127.0.0.1", scheme=Scheme.WS, page="https://elsewhere.example"), False),
        (Origin("192.0.2.1"), False),
        (Origin("192.0.2.1", scheme=Scheme.WS), False),
        (Origin("192.0.2.1", passed_on=True), False),
        (Origin("192.0.2.1", scheme=Scheme.MQTTS, passed_on=True), True),
        (Origin(""), False),
    ],
)
def test_accounts_are_made_where_nobody_can_listen(origin: Origin, is_in: bool) -> None:
    answer = Admission(0, REGISTERS).decide(ABOUT_ACCOUNTS, 0, origin)
    assert isinstance(answer, Admitted) == is_in
    assert isinstance(answer, Admitted) or (isinstance(answer, Rejected) and answer.reason_code == 0x87)


def test_nobody_makes_an_account_through_a_door_that_the_broker_has_closed() -> None:
    policy = Policy(registers=True, plain=False)
    local = Origin("127.0.0.1", passed_on=True)
    assert isinstance(Admission(1, policy).decide(ABOUT_ACCOUNTS, 0, local), Rejected)


def test_nobody_makes_an_account_where_that_is_off() -> None:
    answer = Admission(1, Policy(anonymous="always")).decide(ABOUT_ACCOUNTS, 0, Origin("127.0.0.1"))
    assert isinstance(answer, Rejected) and "access.registration" in answer.reason


def test_no_certificate_proves_the_name_of_who_registered() -> None:
    origin = Origin("192.0.2.1", "~ann", Scheme.MQTTS)
    answer = Admission(1, REGISTERS).decide(asks(), 0, origin)
    assert isinstance(answer, Rejected) and answer.reason_code == 0x87
    assert Admission(1, Policy()).decide(asks(), 0, origin) == Admitted("~ann")
