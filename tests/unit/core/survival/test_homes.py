"""Guests are let go when their home is back, in portions and until they go, and nobody else is."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.survival.homes import (
    AGAIN,
    HOME_MAX_CHARS,
    HOMES_MAX,
    PORTION,
    STEADY,
    UNANSWERED_MAX,
    Homes,
)
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme

MQTT, MQTTS = Scheme.MQTT, Scheme.MQTTS
Sent = list[tuple[str, str]]


def broker(name: str, *schemes: Scheme) -> BrokerInfo:
    doors = tuple(Entrance(scheme, f"{name}:{1883 + at}") for at, scheme in enumerate(schemes or (MQTT,)))
    return BrokerInfo(name, "north", Role.EDGE, "127.0.0.1", 1, doors)


class Host:
    """A broker with guests, and its beats."""

    def __init__(self, every: int = 1) -> None:
        self.guests = Homes(broker("here"), every)
        self.number = 0

    def ask(self) -> tuple[str, ...]:
        self.number += 1
        return self.guests.ask(self.number)

    def beat(self, *there: str | BrokerInfo) -> Sent:
        """One heartbeat, while these are there."""
        asked = self.ask()
        infos = {each if isinstance(each, str) else each.id: each for each in there}
        known = {
            name: broker(each) if isinstance(each, str) else each
            for name, each in infos.items()
            if name in asked
        }
        return self.guests.answered(self.number, known)

    def send_all(self, home: str) -> Sent:
        """So many heartbeats, while that home is there, until somebody is sent."""
        for _ in range(STEADY - 1):
            assert self.beat(home) == []
        return self.beat(home)


def test_a_guest_goes_when_its_home_was_there_for_a_while() -> None:
    host = Host()
    host.guests.came("c", "home", MQTT)
    assert host.beat() == []
    for _ in range(STEADY - 1):
        assert host.beat("home") == []
    assert host.beat("home") == [("c", "home:1883")]
    host.guests.went("c")
    assert len(host.guests) == 0 and host.ask() == ()


def test_a_home_that_comes_and_goes_is_none() -> None:
    host = Host()
    host.guests.came("c", "home", MQTT)
    for _ in range(5):
        for _ in range(STEADY - 1):
            assert host.beat("home") == []
        assert host.beat() == []


def test_who_is_at_home_here_by_name_or_address_is_no_guest() -> None:
    guests = Homes(broker("here"))
    guests.came("a", "here", MQTT)
    guests.came("b", "here:1883", MQTT)
    guests.came("c", "", MQTT)
    guests.came("d", "x" * (HOME_MAX_CHARS + 1), MQTT)
    assert len(guests) == 0


def test_a_guest_stays_until_its_home_has_a_suitable_listener() -> None:
    host = Host()
    host.guests.came("secure", "home", MQTTS)
    for _ in range(STEADY + 3 * AGAIN):
        assert host.beat("home") == []
    both = broker("home", MQTT, MQTTS)
    sent = [each for _ in range(AGAIN + 1) for each in host.beat(both)]
    assert sent == [("secure", "home:1884")]


def test_they_go_in_portions() -> None:
    host = Host()
    for number in range(PORTION + 5):
        host.guests.came(str(number), "home", MQTT)
    first = host.send_all("home")
    assert len(first) == PORTION
    assert len(host.beat("home")) == 5
    assert host.beat("home") == []


def test_who_does_not_go_is_sent_again_but_not_all_the_time() -> None:
    host = Host(every=2)
    host.guests.came("c", "home", MQTT)
    sent = [bool(host.beat("home")) for _ in range(STEADY + 10 * AGAIN)]
    times = [at for at, each in enumerate(sent) if each]
    assert len(times) >= 4
    assert {later - earlier for earlier, later in pairwise(times)} == {2 * AGAIN + 2}


def test_a_later_guest_does_not_wait_for_those_that_stay() -> None:
    host = Host()
    host.guests.came("stubborn", "home", MQTT)
    assert host.send_all("home") == [("stubborn", "home:1883")]
    host.guests.came("new", "home", MQTT)
    assert host.beat("home") == [("new", "home:1883")]


def test_a_home_whose_guests_were_told_is_asked_about_no_more_often() -> None:
    host = Host(every=4)
    host.guests.came("c", "home", MQTT)
    while not host.beat("home"):
        pass
    asked = [bool(host.ask()) for _ in range(8)]
    assert sum(asked) == 2


def test_homes_that_stay_away_do_not_keep_others_from_being_asked_about() -> None:
    host = Host()
    for number in range(3 * HOMES_MAX):
        host.guests.came(f"c{number}", f"h{number}", MQTT)
    asked: set[str] = set()
    for _ in range(3):
        homes = host.ask()
        assert len(homes) == HOMES_MAX
        asked.update(homes)
        host.guests.answered(host.number, {})
    assert len(asked) == 3 * HOMES_MAX


def test_an_answer_slower_than_the_next_heartbeat_still_counts() -> None:
    host = Host(every=4)
    host.guests.came("c", "home", MQTT)
    sent: Sent = []
    for _ in range(4 * STEADY + 3):
        host.ask()
        sent += host.guests.answered(host.number - 2, {"home": broker("home")})
    assert sent == [("c", "home:1883")]


def test_an_answer_counts_once_and_one_that_was_overtaken_not_at_all() -> None:
    host = Host()
    host.guests.came("c", "home", MQTT)
    there = {"home": broker("home")}
    for _ in range(3):
        host.ask()
    assert host.guests.answered(3, there) == []
    for _ in range(STEADY):
        assert host.guests.answered(3, there) == host.guests.answered(1, there) == []


def test_questions_that_nobody_answers_are_forgotten_in_time() -> None:
    host = Host()
    host.guests.came("c", "home", MQTT)
    for _ in range(3 * UNANSWERED_MAX):
        host.ask()
    there = {"home": broker("home")}
    for late in range(1, 2 * UNANSWERED_MAX):
        assert host.guests.answered(late, there) == [], "too late"
    last = range(host.number - STEADY + 1, host.number + 1)
    assert [each for late in last for each in host.guests.answered(late, there)] == [("c", "home:1883")]


step = st.one_of(
    st.tuples(st.just("came"), st.sampled_from("abc"), st.sampled_from(["x", "y", "here"])),
    st.tuples(st.just("went"), st.sampled_from("abc"), st.just("")),
    st.tuples(st.just("obeyed"), st.sampled_from("abc"), st.just("")),
    st.tuples(st.just("beat"), st.just(""), st.sampled_from(["", "x", "y"])),
)


@given(st.lists(step, max_size=60))
def test_in_any_history_guests_are_sent_only_to_a_steady_home(
    story: list[tuple[str, str, str]],
) -> None:
    host = Host()
    homes: dict[str, str] = {}
    told: dict[str, int] = {}  # who was sent, and has not gone → with which beat
    obedient: set[str] = set()  # goes when it is told
    answers: list[str] = []  # which home each beat named
    for kind, client, home in story:
        if kind == "came":
            host.guests.came(client, home, MQTT)
            homes.pop(client, None)
            told.pop(client, None)
            if home != "here":
                homes[client] = home
        elif kind == "went":
            host.guests.went(client)
            homes.pop(client, None)
            told.pop(client, None)
        elif kind == "obeyed":
            obedient.add(client)
        else:
            answers.append(home)
            for guest, reference in host.beat(*([home] if home else [])):
                assert reference == f"{homes[guest]}:1883"
                assert answers[-STEADY:] == [home] * STEADY
                assert len(answers) - told.get(guest, -AGAIN) > AGAIN, "not too often"
                told[guest] = len(answers)
                if guest in obedient:
                    host.guests.went(guest)
                    del homes[guest], told[guest]
        assert len(host.guests) == len(homes)
    for home in sorted({*homes.values()}):
        sent = {guest for _ in range(STEADY + AGAIN) for guest, _ in host.beat(home)}
        assert sent == {guest for guest, at in homes.items() if at == home}, "nobody is forgotten"


def test_who_names_the_address_before_the_last_move_is_at_home_here() -> None:
    guests = Homes(broker("here"))
    there = BrokerInfo("here", "north", Role.EDGE, "127.0.0.1", 1, (Entrance(MQTT, "there:1883"),))
    guests.readdress(there)
    for client, home in (("anna", "here:1883"), ("ben", "there:1883"), ("cleo", "here")):
        guests.came(client, home, MQTT)
    assert len(guests) == 0
