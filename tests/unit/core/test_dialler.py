"""The calling side of a connection: it introduces itself, stays heard, and comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
)

from tocsin.core.dialler import (
    BACKOFF_FIRST_US,
    BACKOFF_MAX_US,
    DEADLINE,
    OWN_US,
    PING,
    REFERRALS_MAX,
    RETRY,
    STEADY_US,
    Closing,
    Dial,
    Dialled,
    Dialler,
    Down,
    HangUp,
    Heard,
    Lost,
    Pinging,
    Up,
)
from tocsin.core.machine import Effect, Event, SetTimer, Started, TimerFired
from tocsin.core.session import SendPacket

GREETING = ConnectPacket("me", keep_alive=10)


def dialler_up(*, redial: bool = True, follow: bool = False) -> Dialler:
    dialler = Dialler(GREETING, redial=redial, follow=follow)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=ConnAckPacket()), 0)
    assert dialler.state == "up"
    return dialler


def kinds(effects: list[Effect]) -> list[type[Effect]]:
    return [type(effect) for effect in effects]


def timer(effects: list[Effect], name: str) -> int:
    return next(e.delay_us for e in effects if isinstance(e, SetTimer) and e.name == name)


def down(effects: list[Effect]) -> Down:
    return next(effect for effect in effects if isinstance(effect, Down))


def test_it_dials_greets_and_is_up_when_accepted() -> None:
    dialler = Dialler(GREETING, redial=True)
    assert kinds(dialler.handle(Started(incarnation=1), 0)) == [Dial, SetTimer]
    greeting = dialler.handle(Dialled(), 0)
    assert isinstance(greeting[0], SendPacket) and greeting[0].packet is GREETING
    effects = dialler.handle(Heard(packet=ConnAckPacket()), 0)
    assert isinstance(effects[-1], Up)
    assert timer(effects, PING) == 5_000_000


def test_the_servers_keep_alive_counts() -> None:
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    assert timer(dialler.handle(Heard(packet=ConnAckPacket(server_keep_alive=4)), 0), PING) == 2_000_000


def test_a_refusal_is_a_failure_with_the_peers_code() -> None:
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    refusal = ConnAckPacket(reason_code=ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD)
    failed = down(dialler.handle(Heard(packet=refusal), 0))
    assert (failed.reason, failed.reason_code) == ("refused: bad user name or password", 0x86)
    assert dialler.state == "waiting"


def test_a_peer_that_does_not_answer_pings_is_given_up() -> None:
    dialler = dialler_up()
    first = dialler.handle(TimerFired(name=PING), 5_000_000)
    assert isinstance(first[0], SendPacket) and isinstance(first[0].packet, PingReqPacket)
    dialler.handle(Heard(packet=PingRespPacket()), 5_100_000)
    assert dialler.handle(TimerFired(name=PING), 10_000_000), "answered, so it goes on"
    assert down(dialler.handle(TimerFired(name=PING), 15_000_000)).reason == "the peer no longer answers"


def test_silence_after_the_greeting_is_a_failure() -> None:
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    effects = dialler.handle(TimerFired(name=DEADLINE), 10_000_000)
    assert HangUp in kinds(effects)
    assert down(effects).reason == "no answer within 10 s"


def test_back_off_grows_to_its_bound_and_starts_anew_after_a_good_while() -> None:
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=3), 0)
    delays = []
    for _ in range(12):
        delays.append(down(dialler.handle(Lost(reason="no"), 0)).retry_us or 0)
        dialler.handle(TimerFired(name=RETRY), 0)
    for count, delay_us in enumerate(delays):
        longest_us = min(BACKOFF_MAX_US, BACKOFF_FIRST_US << count)
        assert longest_us * 3 // 4 <= delay_us <= longest_us
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=ConnAckPacket()), 0)
    again = down(dialler.handle(Lost(reason="no"), BACKOFF_MAX_US + 1)).retry_us or 0
    assert again <= BACKOFF_FIRST_US


def lost_after(up_us: int, failures: int) -> int:
    """The wait of one who failed so often, was up for a while then, and lost the connection."""
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=3), 0)
    for _ in range(failures):
        dialler.handle(Lost(reason="no"), 0)
        dialler.handle(TimerFired(name=RETRY), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=ConnAckPacket()), 0)
    return down(dialler.handle(Lost(reason="no"), up_us)).retry_us or 0


def test_who_was_up_longer_than_it_had_waited_does_not_pay_for_what_went_wrong_before() -> None:
    assert lost_after(2_000_000, failures=5) <= BACKOFF_FIRST_US, "the last wait was at most 1.6 s"
    assert lost_after(2_000_000, failures=6) > 2_000_000, "and this time it was more than 2.4 s"


def test_a_peer_that_accepts_and_drops_at_once_is_dialled_less_and_less_often() -> None:
    assert lost_after(STEADY_US, failures=3) > 4 * BACKOFF_FIRST_US
    assert lost_after(STEADY_US + 1, failures=3) <= BACKOFF_FIRST_US


def test_two_diallers_do_not_come_back_at_the_same_moment() -> None:
    delays = set()
    for incarnation in range(20):
        dialler = Dialler(GREETING, redial=True)
        dialler.handle(Started(incarnation=incarnation * 7_919), 0)
        delays.add(down(dialler.handle(Lost(reason="no"), 0)).retry_us)
    assert len(delays) > 10


def test_without_redial_the_first_failure_is_the_end() -> None:
    dialler = dialler_up(redial=False)
    gone = DisconnectPacket(reason_code=DisconnectReasonCode.SERVER_SHUTTING_DOWN)
    failed = down(dialler.handle(Heard(packet=gone), 1))
    assert (failed.reason, failed.reason_code, failed.retry_us) == ("server shutting down", 0x8B, None)
    assert dialler.state == "closed"


def test_closing_says_goodbye_and_ignores_what_follows() -> None:
    dialler = dialler_up()
    effects = dialler.handle(Closing(), 1)
    assert isinstance(effects[0], SendPacket) and isinstance(effects[0].packet, DisconnectPacket)
    assert kinds(effects)[-1] is HangUp
    for event in (Lost(reason="x"), Heard(packet=PingRespPacket()), TimerFired(name=RETRY), Closing()):
        assert dialler.handle(event, 2) == []


# ── being sent to another server ────────────────────────────────────────────────────────────────────────────


ELSEWHERE = ConnAckPacket(reason_code=ConnAckReasonCode.USE_ANOTHER_SERVER, server_reference="other:1884")


def dialled(effects: list[Effect]) -> Dial:
    return next(effect for effect in effects if isinstance(effect, Dial))


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
    assert dialled(dialler.handle(TimerFired(name=RETRY), 3)).server is None, "back to the usual one"


def test_a_server_that_moved_for_good_is_the_usual_one_from_then_on() -> None:
    dialler = dialler_up(follow=True)
    moved = DisconnectPacket(reason_code=DisconnectReasonCode.SERVER_MOVED, server_reference="new")
    assert dialled(dialler.handle(Heard(packet=moved), 1)).server == ("new", None)
    dialler.handle(Lost(reason="not there yet"), 2)
    assert dialled(dialler.handle(TimerFired(name=RETRY), 3)).server == ("new", None)


def test_servers_that_send_each_other_their_clients_are_not_followed_for_ever() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True)
    dialler.handle(Started(incarnation=1), 0)
    for _ in range(REFERRALS_MAX):
        dialler.handle(Dialled(), 0)
        assert Dial in kinds(dialler.handle(Heard(packet=ELSEWHERE), 0))
    dialler.handle(Dialled(), 0)
    assert timer(dialler.handle(Heard(packet=ELSEWHERE), 0), RETRY) > 0
    dialler.handle(TimerFired(name=RETRY), 1)
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


happenings: st.SearchStrategy[Event] = st.sampled_from(
    [
        Dialled(),
        Lost(reason="broken"),
        Heard(packet=ConnAckPacket()),
        Heard(packet=PingRespPacket()),
        Heard(packet=DisconnectPacket()),
        Heard(
            packet=DisconnectPacket(
                reason_code=DisconnectReasonCode.USE_ANOTHER_SERVER, server_reference="other"
            )
        ),
        TimerFired(name=DEADLINE),
        TimerFired(name=PING),
        TimerFired(name=RETRY),
    ]
)


@given(st.lists(happenings, max_size=40))
def test_a_shell_that_obeys_always_has_a_way_forward(story: list[Event]) -> None:
    """Feed only what the shell could: a call exists from Dial to HangUp or Lost, timers only when they run."""
    dialler = Dialler(GREETING, redial=True, follow=True)
    timers: set[str] = set()
    call = "none"

    def do(effects: list[Effect]) -> None:
        nonlocal call
        for effect in effects:
            name = getattr(effect, "name", None)
            if isinstance(effect, SetTimer):
                timers.add(effect.name)
            elif name is not None:
                timers.discard(name)
            elif isinstance(effect, Dial):
                call = "dialling"
            elif isinstance(effect, HangUp):
                call = "none"

    do(dialler.handle(Started(incarnation=1), 0))
    for event in story:
        if isinstance(event, TimerFired):
            if event.name not in timers:
                continue
            timers.discard(event.name)
        elif isinstance(event, Dialled):
            if call != "dialling":
                continue
            call = "made"
        elif isinstance(event, Lost):
            if call == "none":
                continue
            call = "none"
        elif call != "made":
            continue
        do(dialler.handle(event, 0))
        assert call != "none" or RETRY in timers, "no connection, and no plan to make one"


# ── a list of servers ───────────────────────────────────────────────────────────────────────────────────────


def turns(effects: list[Effect]) -> list[int]:
    return [effect.turn for effect in effects if isinstance(effect, Dial)]


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
        assert turns(dialler.handle(TimerFired(name=RETRY), 0)) == [0], "from the first again"


def test_a_refusal_too_is_followed_by_the_next_server() -> None:
    dialler = Dialler(GREETING, redial=False, servers=2)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    busy = Heard(packet=ConnAckPacket(reason_code=ConnAckReasonCode.SERVER_BUSY))
    assert turns(dialler.handle(busy, 0)) == [1]


def test_a_connection_that_was_up_and_broke_begins_at_the_first_server_again() -> None:
    dialler = Dialler(GREETING, redial=True, servers=2)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Lost(reason="no"), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=ConnAckPacket()), 0)
    broken = dialler.handle(Lost(reason="no"), 0)
    assert turns(broken) == [] and down(broken).retry_us
    assert turns(dialler.handle(TimerFired(name=RETRY), 0)) == [0]


def test_a_server_that_is_named_is_spoken_to_like_the_one_that_named_it() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, servers=2)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Lost(reason="no"), 0)
    dialler.handle(Dialled(), 0)
    elsewhere = ConnAckPacket(reason_code=ConnAckReasonCode.USE_ANOTHER_SERVER, server_reference="other:1")
    effects = dialler.handle(Heard(packet=elsewhere), 0)
    assert [(each.server, each.turn) for each in effects if isinstance(each, Dial)] == [(("other", 1), 1)]


def told(*properties: tuple[str, str]) -> ConnAckPacket:
    return ConnAckPacket(user_properties=list(properties))


def greeted(effects: list[Effect]) -> ConnectPacket:
    packet = next(effect.packet for effect in effects if isinstance(effect, SendPacket))
    assert isinstance(packet, ConnectPacket)
    return packet


def dials(effects: list[Effect]) -> list[tuple[object, int]]:
    return [(effect.server, effect.turn) for effect in effects if isinstance(effect, Dial)]


def test_it_says_where_it_is_at_home_by_address_and_then_by_name() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="here:1883")
    dialler.handle(Started(incarnation=1), 0)
    first = greeted(dialler.handle(Dialled(), 0))
    assert first.user_properties == [("home", "here:1883")]
    assert (first.client_id, first.keep_alive) == (GREETING.client_id, GREETING.keep_alive)
    dialler.handle(Heard(packet=told(("broker", "north-1"))), 0)
    dialler.handle(Lost(reason="x"), 0)
    dialler.handle(TimerFired(name=RETRY), 0)
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == [("home", "north-1")]


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
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == [("home", "here:1883")]
    dialler.handle(Heard(packet=told(("broker", "north-2"))), 0)
    assert dialler.state == "up"
    dialler.handle(Lost(reason="x"), 0)
    dialler.handle(TimerFired(name=RETRY), 0)
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == [("home", "here:1883")]


def test_when_its_broker_is_gone_it_goes_to_those_that_the_broker_told_it_of() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="here:1883")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    servers = [("broker", "north-1"), ("server", "a:1"), ("server", "?!"), ("server", "b")]
    dialler.handle(Heard(packet=told(*servers)), 0)
    dialler.handle(Lost(reason="killed"), 0)
    seen = dials(dialler.handle(TimerFired(name=RETRY), 0))
    for _ in range(3):
        seen += dials(dialler.handle(Lost(reason="refused"), 0))
    assert seen == [(None, 0), (("a", 1), 0), (("b", None), 0)]
    assert dialler.state == "waiting"


def test_a_link_says_nothing_of_a_home_and_learns_of_no_servers() -> None:
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=1), 0)
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == []
    dialler.handle(Heard(packet=told(("broker", "b"), ("server", "a:1"))), 0)
    dialler.handle(Lost(reason="x"), 0)
    assert dials(dialler.handle(TimerFired(name=RETRY), 0)) == [(None, 0)]
    assert dials(dialler.handle(Lost(reason="x"), 0)) == []


def test_it_is_told_of_other_servers_later_too() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="here:1883")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("server", "old:1"))), 0)
    dialler.handle(Heard(packet=PublishPacket("$home/servers", b"a:1 \xff b:2")), 0)
    dialler.handle(Heard(packet=PublishPacket("elsewhere", b"c:1")), 0)
    dialler.handle(Lost(reason="killed"), 0)
    seen = dials(dialler.handle(TimerFired(name=RETRY), 0))
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
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == [("home", "here:1883"), ("stay", "yes")]
    dialler.handle(Heard(packet=told(("broker", "south-1"))), 0)
    dialler.handle(Lost(reason="x"), 0)
    dialler.handle(TimerFired(name=RETRY), 0)
    assert greeted(dialler.handle(Dialled(), 0)).user_properties == [("home", "here:1883")]


# ── how far the peer is ──────────────────────────────────────────────────────────────────────────────────────


def test_the_round_trip_is_that_of_the_last_sign_of_life() -> None:
    dialler = dialler_up()
    assert kinds(dialler.handle(TimerFired(name=PING), 5_000_000)) == [SendPacket, SetTimer]
    dialler.handle(Heard(packet=PingRespPacket()), 5_012_000)
    assert dialler.round_trip_us == 12_000
    dialler.handle(Heard(packet=PingRespPacket()), 9_000_000)  # nobody asked for it
    assert dialler.round_trip_us == 12_000


def test_a_sign_of_life_can_be_asked_for_and_the_peer_has_as_long_as_ever() -> None:
    dialler = dialler_up()
    effects = dialler.handle(Pinging(), 4_990_000)
    assert [e.packet for e in effects if isinstance(e, SendPacket)] == [PingReqPacket()]
    assert timer(effects, PING) == 5_000_000
    assert dialler.handle(Pinging(), 4_991_000) == []  # it is asked already
    dialler.handle(Heard(packet=PingRespPacket()), 4_995_000)
    assert dialler.round_trip_us == 5_000


def test_nobody_is_asked_while_there_is_no_connection() -> None:
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=1), 0)
    assert dialler.handle(Pinging(), 1) == []
    assert Dialler(ConnectPacket("me", keep_alive=0), redial=True).handle(Pinging(), 1) == []


def test_what_was_written_to_a_peer_that_is_silent_must_not_arrive_later() -> None:
    dialler = dialler_up()
    dialler.handle(TimerFired(name=PING), 5_000_000)
    (hung_up,) = [e for e in dialler.handle(TimerFired(name=PING), 10_000_000) if isinstance(e, HangUp)]
    assert hung_up.abrupt
    dialler = dialler_up()
    (hung_up,) = [e for e in dialler.handle(Lost(reason="reset"), 10_000_000) if isinstance(e, HangUp)]
    assert not hung_up.abrupt


def test_a_home_that_no_longer_answers_is_passed_over_once() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="home:1")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("broker", "north-1"), ("server", "other:1"))), 0)
    dialler.handle(TimerFired(name=PING), 5_000_000)
    effects = dialler.handle(TimerFired(name=PING), 10_000_000)
    assert down(effects).retry_us == 0
    assert dials(effects) == [(("other", 1), 0)]
    dialler.handle(Lost(reason="refused"), 10_000_000)
    assert dialler.state == "waiting", "nobody else is there"
    assert dials(dialler.handle(TimerFired(name=RETRY), 11_000_000)) == [(None, 0)], "home again"


def test_another_server_that_no_longer_answers_has_it_begin_at_home() -> None:
    dialler = Dialler(GREETING, redial=True, follow=True, home="home:1")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=told(("server", "other:1"), ("server", "more:1"))), 0)
    dialler.handle(Lost(reason="broke"), 1)
    dialler.handle(TimerFired(name=RETRY), 200_000)
    dialler.handle(Lost(reason="refused"), 200_000)
    dialler.handle(Dialled(), 200_000)
    dialler.handle(Heard(packet=told(("server", "other:1"), ("server", "more:1"))), 200_000)
    assert dialler.state == "up"
    dialler.handle(TimerFired(name=PING), 5_000_000)
    dialler.handle(TimerFired(name=PING), 10_000_000)
    assert dialler.state == "waiting"


def test_who_does_not_redial_passes_nobody_over() -> None:
    dialler = Dialler(GREETING, redial=False, servers=2)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=ConnAckPacket()), 0)
    dialler.handle(TimerFired(name=PING), 5_000_000)
    dialler.handle(TimerFired(name=PING), 10_000_000)
    assert dialler.state == "closed"


# ── told that another has our session ───────────────────────────────────────────────────────────────────────


def taken_over(dialler: Dialler, now_us: int) -> Down:
    return down(
        dialler.handle(
            Heard(packet=DisconnectPacket(reason_code=DisconnectReasonCode.SESSION_TAKEN_OVER)), now_us
        )
    )


def back_up(dialler: Dialler, now_us: int) -> None:
    dialler.handle(TimerFired(name=RETRY), now_us)
    dialler.handle(Dialled(), now_us)
    dialler.handle(Heard(packet=ConnAckPacket()), now_us)


def test_who_has_had_one_connection_only_is_ousted_by_another_client() -> None:
    assert not taken_over(dialler_up(), 1_000_000).own


def test_soon_after_an_earlier_connection_it_may_have_been_that_one_and_this_is_believed_once() -> None:
    dialler = dialler_up()
    dialler.handle(Lost(reason="gone"), 0)
    back_up(dialler, 1_000_000)
    assert taken_over(dialler, 1_000_000 + OWN_US // 2).own
    back_up(dialler, 2_000_000 + OWN_US // 2)
    assert not taken_over(dialler, 3_000_000 + OWN_US // 2).own, "a second time it is somebody else"


def test_long_after_the_earlier_connection_it_is_another_client() -> None:
    dialler = dialler_up()
    dialler.handle(Lost(reason="gone"), 0)
    back_up(dialler, 1_000_000)
    assert not taken_over(dialler, OWN_US + 1).own


def test_a_greeting_that_was_given_up_counts_as_an_earlier_connection_and_a_failed_dial_does_not() -> None:
    dialled, refused = Dialler(GREETING, redial=True), Dialler(GREETING, redial=True)
    for dialler in (dialled, refused):
        dialler.handle(Started(incarnation=1), 0)
    dialled.handle(Dialled(), 0)
    dialled.handle(TimerFired(name=DEADLINE), 0)
    refused.handle(Lost(reason="nobody listens"), 0)
    for dialler in (dialled, refused):
        back_up(dialler, 1)
    assert taken_over(dialled, 2).own
    assert not taken_over(refused, 2).own
