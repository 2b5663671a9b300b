"""The calling side of a connection: it introduces itself, stays heard, and comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    DisconnectPacket,
    DisconnectReasonCode,
    PingReqPacket,
    PingRespPacket,
)

from tests.unit.core.links.diallers import (
    GREETING,
    dialler_up,
    down,
    kinds,
    timer,
)
from tocsin.core.links.dialler import (
    BACKOFF_FIRST_US,
    BACKOFF_MAX_US,
    FORGIVE_US,
    FORGIVEN_MAX,
    OWN_US,
    STEADY_US,
    Dialler,
    DiallerTimer,
)
from tocsin.core.links.signals import (
    Closing,
    Dial,
    Dialled,
    Down,
    Flow,
    FlowSeen,
    HangUp,
    Heard,
    LookAtFlow,
    Lost,
    Up,
)
from tocsin.core.machine import Effect, Event, SetTimer, Started, TimerFired
from tocsin.core.session.signals import SendPacket


def test_it_dials_greets_and_is_up_when_accepted() -> None:
    dialler = Dialler(GREETING, redial=True)
    assert kinds(dialler.handle(Started(incarnation=1), 0)) == [Dial, SetTimer]
    greeting = dialler.handle(Dialled(), 0)
    assert isinstance(greeting[0], SendPacket) and greeting[0].packet is GREETING
    effects = dialler.handle(Heard(packet=ConnAckPacket()), 0)
    assert isinstance(effects[-1], Up)
    assert timer(effects, DiallerTimer.PING) == 5_000_000


def test_the_servers_keep_alive_counts() -> None:
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    assert (
        timer(dialler.handle(Heard(packet=ConnAckPacket(server_keep_alive=4)), 0), DiallerTimer.PING)
        == 2_000_000
    )


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
    first = dialler.handle(TimerFired(name=DiallerTimer.PING), 5_000_000)
    assert isinstance(first[0], SendPacket) and isinstance(first[0].packet, PingReqPacket)
    dialler.handle(Heard(packet=PingRespPacket()), 5_100_000)
    assert dialler.handle(TimerFired(name=DiallerTimer.PING), 10_000_000), "answered, so it goes on"
    assert kinds(dialler.handle(TimerFired(name=DiallerTimer.PING), 15_000_000)) == [LookAtFlow]
    assert down(dialler.handle(FlowSeen(flow=None), 15_000_000)).reason == "the peer no longer answers"


def seen(dialler: Dialler, now_us: int, taken: int, *, waits: bool) -> list[Effect]:
    """What follows when an answer is overdue, and bytes flow like that."""
    assert kinds(dialler.handle(TimerFired(name=DiallerTimer.PING), now_us)) == [LookAtFlow]
    return dialler.handle(FlowSeen(flow=Flow(taken, waits)), now_us)


def test_an_answer_may_wait_behind_what_a_narrow_connection_carries() -> None:
    dialler = dialler_up()
    dialler.handle(TimerFired(name=DiallerTimer.PING), 5_000_000)
    for turn in range(1, 10):
        effects = seen(dialler, 5_000_000 + turn * 5_000_000, 1_000 * turn, waits=True)
        assert timer(effects, DiallerTimer.PING) == 5_000_000
    assert kinds(seen(dialler, 55_000_000, 9_900, waits=False)) == [SetTimer], (
        "the question may be just there"
    )
    dialler.handle(Heard(packet=PingRespPacket()), 56_000_000)
    asked = dialler.handle(TimerFired(name=DiallerTimer.PING), 60_000_000)
    assert isinstance(asked[0], SendPacket) and isinstance(asked[0].packet, PingReqPacket)
    assert down(seen(dialler, 65_000_000, 10_000, waits=False)), "all of it has arrived long ago"


def test_a_peer_that_takes_nothing_more_is_given_up() -> None:
    """As a frozen process, once the buffers of its machine are full."""
    dialler = dialler_up()
    dialler.handle(TimerFired(name=DiallerTimer.PING), 5_000_000)
    assert kinds(seen(dialler, 10_000_000, 500, waits=True)) == [SetTimer]
    assert down(seen(dialler, 15_000_000, 500, waits=True)).reason == "the peer no longer answers"


def test_silence_after_the_greeting_is_a_failure() -> None:
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    effects = dialler.handle(TimerFired(name=DiallerTimer.DEADLINE), 10_000_000)
    assert HangUp in kinds(effects)
    assert down(effects).reason == "no answer within 10 s"


def test_back_off_grows_to_its_bound_and_resets_after_a_long_connection() -> None:
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=3), 0)
    delays = []
    for _ in range(12):
        delays.append(down(dialler.handle(Lost(reason="no"), 0)).retry_us or 0)
        dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0)
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
        dialler.handle(TimerFired(name=DiallerTimer.RETRY), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=ConnAckPacket()), 0)
    return down(dialler.handle(Lost(reason="no"), up_us)).retry_us or 0


def test_a_connection_longer_than_the_last_wait_resets_the_back_off() -> None:
    assert lost_after(2_000_000, failures=5) <= BACKOFF_FIRST_US, "the last wait was at most 1.6 s"
    assert lost_after(2_000_000, failures=6) > 2_000_000, "and this time it was more than 2.4 s"


def test_a_peer_that_drops_connections_at_once_is_dialled_less_often() -> None:
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
    for event in (
        Lost(reason="x"),
        Heard(packet=PingRespPacket()),
        TimerFired(name=DiallerTimer.RETRY),
        Closing(),
    ):
        assert dialler.handle(event, 2) == []


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
        TimerFired(name=DiallerTimer.DEADLINE),
        TimerFired(name=DiallerTimer.PING),
        TimerFired(name=DiallerTimer.RETRY),
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
        assert call != "none" or DiallerTimer.RETRY in timers, "no connection, and no plan to make one"


def taken_over(dialler: Dialler, now_us: int) -> Down:
    return down(
        dialler.handle(
            Heard(packet=DisconnectPacket(reason_code=DisconnectReasonCode.SESSION_TAKEN_OVER)), now_us
        )
    )


def back_up(dialler: Dialler, now_us: int) -> None:
    dialler.handle(TimerFired(name=DiallerTimer.RETRY), now_us)
    dialler.handle(Dialled(), now_us)
    dialler.handle(Heard(packet=ConnAckPacket()), now_us)


def test_who_has_had_one_connection_only_is_ousted_by_another_client() -> None:
    assert not taken_over(dialler_up(), 1_000_000).own


def test_a_takeover_soon_after_our_own_connection_is_forgiven_a_few_times() -> None:
    dialler, now_us = dialler_up(), 0
    dialler.handle(Lost(reason="gone"), now_us)
    for _ in range(FORGIVEN_MAX):
        now_us += OWN_US // 2
        back_up(dialler, now_us)
        assert taken_over(dialler, now_us + 1).own
    back_up(dialler, now_us + 2)
    assert not taken_over(dialler, now_us + 3).own, "so often it is somebody else"
    back_up(dialler, now_us + FORGIVE_US)
    assert taken_over(dialler, now_us + FORGIVE_US).own is False, "too long after the one before"
    back_up(dialler, now_us + FORGIVE_US + 1)
    assert taken_over(dialler, now_us + FORGIVE_US + 2).own


def test_long_after_the_earlier_connection_it_is_another_client() -> None:
    dialler = dialler_up()
    dialler.handle(Lost(reason="gone"), 0)
    back_up(dialler, 1_000_000)
    assert not taken_over(dialler, OWN_US + 1).own


def test_an_abandoned_greeting_counts_as_an_earlier_connection_but_no_failed_dial() -> None:
    dialled, refused = Dialler(GREETING, redial=True), Dialler(GREETING, redial=True)
    for dialler in (dialled, refused):
        dialler.handle(Started(incarnation=1), 0)
    dialled.handle(Dialled(), 0)
    dialled.handle(TimerFired(name=DiallerTimer.DEADLINE), 0)
    refused.handle(Lost(reason="nobody listens"), 0)
    for dialler in (dialled, refused):
        back_up(dialler, 1)
    assert taken_over(dialled, 2).own
    assert not taken_over(refused, 2).own
