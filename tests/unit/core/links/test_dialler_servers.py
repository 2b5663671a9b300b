"""Other servers than the usual one: those of a list, those that a server names, and home."""

from __future__ import annotations

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    PublishPacket,
)

from tests.unit.core.links.diallers import (
    ELSEWHERE,
    GREETING,
    dialled,
    dialler_up,
    dials,
    down,
    greeted,
    kinds,
    timer,
    told,
    turns,
    unanswered,
)
from tocsin.core.links.dialler import REFERRALS_MAX, Dialler, DiallerTimer
from tocsin.core.links.signals import Dial, Dialled, Heard, Lost
from tocsin.core.machine import Started, TimerFired
from tocsin.core.session.signals import SendPacket

HOME_V = ("home.v", "1")


@pytest.mark.parametrize("redial", [True, False])
def test_who_follows_goes_at_once_where_a_server_sends_it(redial: bool) -> None:
    dialler = Dialler(GREETING, redial=redial, follow=True)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    effects = dialler.handle(Heard(packet=ELSEWHERE), 0)
    assert (dialled(effects).server, down(effects).retry_us, dialler.state) == (
        ("other", 1884),
        0,
        "dialling",
    )


def test_a_server_that_stops_sends_on_whoever_is_connected() -> None:
    dialler = dialler_up(follow=True)
    gone = DisconnectPacket(
        reason_code=DisconnectReasonCode.USE_ANOTHER_SERVER, server_reference="other:1884"
    )
    assert dialled(dialler.handle(Heard(packet=gone), 1)).server == ("other", 1884)
    dialler.handle(Dialled(), 1)
    dialler.handle(Heard(packet=ConnAckPacket()), 1)
    dialler.handle(Lost(reason="gone as well"), 2)
    assert dialled(dialler.handle(TimerFired(name=DiallerTimer.RETRY), 3)).server is None, (
        "back to the usual one"
    )


def test_a_permanent_redirect_changes_the_usual_server() -> None:
    dialler = dialler_up(follow=True)
    moved = DisconnectPacket(reason_code=DisconnectReasonCode.SERVER_MOVED, server_reference="new")
    assert dialled(dialler.handle(Heard(packet=moved), 1)).server == ("new", None)
    again = dialled(dialler.handle(Lost(reason="not there yet"), 2))
    assert (again.server, again.turn) == (None, 0), "the first server comes last"
    dialler.handle(Lost(reason="nor is that"), 3)
    assert dialled(dialler.handle(TimerFired(name=DiallerTimer.RETRY), 4)).server == ("new", None)


def test_a_client_that_was_moved_has_its_home_there() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="door:1882", servers=2)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Lost(reason="dead"), 0)
    dialler.handle(Dialled(), 0)
    moved = ConnAckPacket(reason_code=ConnAckReasonCode.SERVER_MOVED, server_reference="b:1883")
    assert dialled(dialler.handle(Heard(packet=moved), 0)).server == ("b", 1883)
    dialler.handle(Dialled(), 0)
    told = [("home.v", "1"), ("broker", "b"), ("server", "c:1883")]
    dialler.handle(Heard(packet=ConnAckPacket(user_properties=told)), 0)
    assert dialler._home == "b"


def test_servers_that_move_to_each_other_are_not_followed_for_ever() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="a:1", servers=2)
    dialler.handle(Started(incarnation=1), 0)
    moved = ConnAckPacket(reason_code=ConnAckReasonCode.SERVER_MOVED, server_reference="b:1883")
    for _ in range(4 * (REFERRALS_MAX + 1)):
        dialler.handle(Dialled(), 0)
        if DiallerTimer.RETRY in [
            getattr(each, "name", "") for each in dialler.handle(Heard(packet=moved), 0)
        ]:
            return
    raise AssertionError("it never waits")


def test_a_client_that_was_moved_for_good_is_at_home_there() -> None:
    dialler = dialler_up(follow=True, home="old:1883")
    moved = DisconnectPacket(reason_code=DisconnectReasonCode.SERVER_MOVED, server_reference="new:1883")
    dialler.handle(Heard(packet=moved), 1)
    (greeting,) = [each.packet for each in dialler.handle(Dialled(), 2) if isinstance(each, SendPacket)]
    assert isinstance(greeting, ConnectPacket) and ("home", "new:1883") in greeting.user_properties
    dialler.handle(Heard(packet=ConnAckPacket(user_properties=[HOME_V, ("broker", "north-2")])), 3)
    dialler.handle(Lost(reason="cut"), 4)
    assert dialled(dialler.handle(TimerFired(name=DiallerTimer.RETRY), 5)).server == ("new", 1883)
    (greeting,) = [each.packet for each in dialler.handle(Dialled(), 6) if isinstance(each, SendPacket)]
    assert isinstance(greeting, ConnectPacket) and ("home", "north-2") in greeting.user_properties


def test_servers_that_send_each_other_their_clients_are_not_followed_for_ever() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True)
    dialler.handle(Started(incarnation=1), 0)
    for _ in range(REFERRALS_MAX):
        dialler.handle(Dialled(), 0)
        assert Dial in kinds(dialler.handle(Heard(packet=ELSEWHERE), 0))
    dialler.handle(Dialled(), 0)
    assert timer(dialler.handle(Heard(packet=ELSEWHERE), 0), DiallerTimer.RETRY) > 0
    dialler.handle(TimerFired(name=DiallerTimer.RETRY), 1)
    dialler.handle(Dialled(), 1)
    assert Dial in kinds(dialler.handle(Heard(packet=ELSEWHERE), 1)), "a new round"


@pytest.mark.parametrize(
    ("follow", "answer"),
    [
        (False, ELSEWHERE),
        (True, ConnAckPacket(reason_code=ConnAckReasonCode.SERVER_BUSY, server_reference="other")),
        (True, ConnAckPacket(reason_code=ConnAckReasonCode.USE_ANOTHER_SERVER, server_reference="?")),
        (True, ConnAckPacket(reason_code=ConnAckReasonCode.USE_ANOTHER_SERVER)),
    ],
)
def test_without_leave_a_fitting_code_or_a_server_it_stays(follow: bool, answer: ConnAckPacket) -> None:
    dialler = Dialler(GREETING, redial=True, follow=follow)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=answer), 0)
    assert dialler.state == "waiting"


@pytest.mark.parametrize("redial", [True, False])
def test_the_servers_are_tried_in_order_and_at_once(redial: bool) -> None:
    dialler = Dialler(GREETING, redial=redial, servers=3)
    assert turns(dialler.handle(Started(incarnation=1), 0)) == [0]
    for turn in (1, 2):
        effects = dialler.handle(Lost(reason="no"), 0)
        assert turns(effects) == [turn] and down(effects).retry_us == 0
    last = dialler.handle(Lost(reason="no"), 0)
    assert turns(last) == []
    assert (down(last).retry_us is not None) == redial
    if redial:
        assert turns(dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0)) == [0], "from the first again"


def test_a_refusal_too_is_followed_by_the_next_server() -> None:
    dialler = Dialler(GREETING, redial=False, servers=2)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    busy = Heard(packet=ConnAckPacket(reason_code=ConnAckReasonCode.SERVER_BUSY))
    assert turns(dialler.handle(busy, 0)) == [1]


def test_a_broken_connection_starts_again_at_the_first_server() -> None:
    dialler = Dialler(GREETING, redial=True, servers=2)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Lost(reason="no"), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=ConnAckPacket()), 0)
    broken = dialler.handle(Lost(reason="no"), 0)
    assert turns(broken) == [] and down(broken).retry_us
    assert turns(dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0)) == [0]


def test_a_redirect_target_is_dialled_like_the_server_that_named_it() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, servers=2)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Lost(reason="no"), 0)
    dialler.handle(Dialled(), 0)
    elsewhere = ConnAckPacket(reason_code=ConnAckReasonCode.USE_ANOTHER_SERVER, server_reference="other:1")
    effects = dialler.handle(Heard(packet=elsewhere), 0)
    assert [(each.server, each.turn) for each in effects if isinstance(each, Dial)] == [(("other", 1), 1)]


def test_a_client_names_its_home_by_address_and_then_by_name() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="here:1883")
    dialler.handle(Started(incarnation=1), 0)
    first = greeted(dialler.handle(Dialled(), 0))
    assert first.user_properties == [HOME_V, ("home", "here:1883")]
    assert (first.client_id, first.keep_alive) == (GREETING.client_id, GREETING.keep_alive)
    dialler.handle(Heard(packet=told(("broker", "north-1"))), 0)
    dialler.handle(Lost(reason="x"), 0)
    dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0)
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == [HOME_V, ("home", "north-1")]


def test_what_a_newer_broker_says_of_home_is_passed_over() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="here:1883")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("home.v", "2"), ("broker", "x"), ("server", "y:1"))), 0)
    assert dialler.state == "up" and dialler.told == ()


def test_a_broker_elsewhere_is_not_taken_for_home() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, servers=2, home="here:1883")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Lost(reason="x"), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("broker", "south-1"))), 0)
    assert dialler.state == "up"
    home = DisconnectPacket(
        reason_code=DisconnectReasonCode.USE_ANOTHER_SERVER, server_reference="other:1883"
    )
    assert dials(dialler.handle(Heard(packet=home), 0)) == [(("other", 1883), 1)]
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == [HOME_V, ("home", "here:1883")]
    dialler.handle(Heard(packet=told(("broker", "north-2"))), 0)
    assert dialler.state == "up"
    dialler.handle(Lost(reason="x"), 0)
    dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0)
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == [HOME_V, ("home", "here:1883")]


def test_a_client_of_a_lost_broker_tries_the_named_alternatives() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="here:1883")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    servers = [("broker", "north-1"), ("server", "a:1"), ("server", "?!"), ("server", "b")]
    dialler.handle(Heard(packet=told(*servers)), 0)
    dialler.handle(Lost(reason="killed"), 0)
    seen = dials(dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0))
    for _ in range(3):
        seen += dials(dialler.handle(Lost(reason="refused"), 0))
    assert seen == [(None, 0), (("a", 1), 0), (("b", None), 0)]
    assert dialler.state == "waiting"


def test_servers_that_its_broker_named_come_before_the_rest_of_its_list() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, servers=3, home="here:1883")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("server", "local:1"), ("server", "remote:1"))), 0)
    dialler.handle(Lost(reason="killed"), 0)
    seen = dials(dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0))
    for _ in range(4):
        seen += dials(dialler.handle(Lost(reason="refused"), 0))
    assert seen == [(None, 0), (("local", 1), 0), (("remote", 1), 0), (None, 1), (None, 2)]
    assert dialler.state == "dialling" and dials(dialler.handle(Lost(reason="refused"), 0)) == []


def test_a_redirect_uses_the_log_in_of_the_server_that_gave_it() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, servers=2, home="here:1883")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("server", "a:1"), ("server", "b:1"))), 0)
    dialler.handle(Lost(reason="killed"), 0)
    dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0)
    for _ in range(3):
        dialler.handle(Lost(reason="refused"), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told()), 0)  # the second of its own list, which names nobody
    moved = DisconnectPacket(reason_code=DisconnectReasonCode.USE_ANOTHER_SERVER, server_reference="c:1")
    assert dials(dialler.handle(Heard(packet=moved), 0)) == [(("c", 1), 1)]


def test_a_link_says_nothing_of_a_home_and_learns_of_no_servers() -> None:
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=1), 0)
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == []
    dialler.handle(Heard(packet=told(("broker", "b"), ("server", "a:1"))), 0)
    dialler.handle(Lost(reason="x"), 0)
    assert dials(dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0)) == [(None, 0)]
    assert dials(dialler.handle(Lost(reason="x"), 0)) == []


def test_it_is_told_of_other_servers_later_too() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="here:1883")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("server", "old:1"))), 0)
    dialler.handle(Heard(packet=PublishPacket("$home/servers", b"a:1 \xff b:2")), 0)
    dialler.handle(Heard(packet=PublishPacket("elsewhere", b"c:1")), 0)
    dialler.handle(Lost(reason="killed"), 0)
    seen = dials(dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0))
    for _ in range(2):
        seen += dials(dialler.handle(Lost(reason="refused"), 0))
    assert seen == [(None, 0), (("a", 1), 0), (("b", 2), 0)]


def test_who_cannot_reach_where_it_is_sent_asks_to_stay() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, servers=2, home="here:1883")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    elsewhere = ConnAckPacket(reason_code=ConnAckReasonCode.USE_ANOTHER_SERVER, server_reference="there:1883")
    assert dials(dialler.handle(Heard(packet=elsewhere), 0)) == [(("there", 1883), 0)]
    assert dials(dialler.handle(Lost(reason="no way there"), 0)) == [(None, 1)]
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == [
        HOME_V,
        ("home", "here:1883"),
        ("stay", "yes"),
    ]
    dialler.handle(Heard(packet=told(("broker", "south-1"))), 0)
    dialler.handle(Lost(reason="x"), 0)
    dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0)
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == [HOME_V, ("home", "here:1883")]


def test_a_guest_that_finds_nobody_at_home_goes_back_to_its_backup() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="home:1")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("broker", "h"), ("server", "local:1"), ("server", "remote:1"))), 0)
    dialler.handle(Lost(reason="killed"), 0)
    dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0)
    assert dials(dialler.handle(Lost(reason="refused"), 0)) == [(("local", 1), 0)]
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("broker", "l"), ("server", "home:1"), ("server", "remote:1"))), 0)
    early = DisconnectPacket(
        reason_code=DisconnectReasonCode.USE_ANOTHER_SERVER, server_reference="home:1"
    )  # the leader has not missed the home yet
    assert dials(dialler.handle(Heard(packet=early), 0)) == [(("home", 1), 0)]
    assert dials(dialler.handle(Lost(reason="refused"), 0)) == [(("local", 1), 0)], "and not the remote one"
    assert ("stay", "yes") in greeted(dialler.handle(Dialled(), 0)).user_properties
    assert dials(dialler.handle(Lost(reason="it is gone too"), 0)) == [(("remote", 1), 0)], "in turn"


def test_a_home_that_no_longer_answers_is_passed_over_once() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="home:1")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("broker", "north-1"), ("server", "other:1"))), 0)
    dialler.handle(TimerFired(name=DiallerTimer.PING), 5_000_000)
    effects = unanswered(dialler, 10_000_000)
    assert down(effects).retry_us == 0
    assert dials(effects) == [(("other", 1), 0)]
    dialler.handle(Lost(reason="refused"), 10_000_000)
    assert dialler.state == "waiting", "nobody else is there"
    assert dials(dialler.handle(TimerFired(name=DiallerTimer.RETRY), 11_000_000)) == [(None, 0)], "home again"


def test_another_server_that_no_longer_answers_has_it_begin_at_home() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="home:1")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("server", "other:1"), ("server", "more:1"))), 0)
    dialler.handle(Lost(reason="broke"), 1)
    dialler.handle(TimerFired(name=DiallerTimer.RETRY), 200_000)
    dialler.handle(Lost(reason="refused"), 200_000)
    dialler.handle(Dialled(), 200_000)
    dialler.handle(Heard(packet=told(("server", "other:1"), ("server", "more:1"))), 200_000)
    assert dialler.state == "up"
    dialler.handle(TimerFired(name=DiallerTimer.PING), 5_000_000)
    unanswered(dialler, 10_000_000)
    assert dialler.state == "waiting"


def test_who_does_not_redial_passes_nobody_over() -> None:
    dialler = Dialler(GREETING, redial=False, servers=2)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=ConnAckPacket()), 0)
    dialler.handle(TimerFired(name=DiallerTimer.PING), 5_000_000)
    unanswered(dialler, 10_000_000)
    assert dialler.state == "closed"
