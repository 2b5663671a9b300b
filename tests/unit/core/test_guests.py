"""Guests are let go when their home is back, in portions, and nobody else is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.guests import HOME_MAX_CHARS, HOMES_MAX, PORTION, STEADY, Guests
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme

MQTT, MQTTS = Scheme.MQTT, Scheme.MQTTS


def broker(name: str) -> BrokerInfo:
    return BrokerInfo(name, "north", Role.EDGE, "127.0.0.1", 1, (Entrance(MQTT, f"{name}:1883"),))


def beat(guests: Guests, *there: str) -> list[tuple[str, str]]:
    """One heartbeat, while these are there."""
    asked = guests.ask()
    return guests.answered({home: broker(home) for home in there if home in asked})


def test_a_guest_goes_when_its_home_was_there_for_a_while() -> None:
    guests = Guests(broker("here"))
    guests.came("c", "home", MQTT)
    assert beat(guests) == []
    for _ in range(STEADY - 1):
        assert beat(guests, "home") == []
    assert beat(guests, "home") == [("c", "home:1883")]
    assert len(guests) == 0 and guests.ask() == ()


def test_a_home_that_comes_and_goes_is_none() -> None:
    guests = Guests(broker("here"))
    guests.came("c", "home", MQTT)
    for _ in range(5):
        for _ in range(STEADY - 1):
            assert beat(guests, "home") == []
        assert beat(guests) == []


def test_who_is_at_home_here_by_name_or_address_is_no_guest() -> None:
    guests = Guests(broker("here"))
    guests.came("a", "here", MQTT)
    guests.came("b", "here:1883", MQTT)
    guests.came("c", "", MQTT)
    guests.came("d", "x" * (HOME_MAX_CHARS + 1), MQTT)
    assert len(guests) == 0


def test_a_guest_that_has_no_way_in_at_home_stays() -> None:
    guests = Guests(broker("here"))
    guests.came("secure", "home", MQTTS)
    for _ in range(STEADY + 1):
        assert beat(guests, "home") == []


def test_they_go_in_portions() -> None:
    guests = Guests(broker("here"))
    for number in range(PORTION + 5):
        guests.came(str(number), "home", MQTT)
    for _ in range(STEADY - 1):
        beat(guests, "home")
    assert len(beat(guests, "home")) == PORTION
    assert len(beat(guests, "home")) == 5


def test_homes_that_stay_away_do_not_keep_others_from_being_asked_about() -> None:
    guests = Guests(broker("here"))
    for number in range(3 * HOMES_MAX):
        guests.came(f"c{number}", f"h{number}", MQTT)
    asked: set[str] = set()
    for _ in range(3):
        homes = guests.ask()
        assert len(homes) == HOMES_MAX
        asked.update(homes)
        guests.answered({})
    assert len(asked) == 3 * HOMES_MAX


step = st.one_of(
    st.tuples(st.just("came"), st.sampled_from("abc"), st.sampled_from(["x", "y", "here"])),
    st.tuples(st.just("went"), st.sampled_from("abc"), st.just("")),
    st.tuples(st.just("beat"), st.just(""), st.sampled_from(["", "x", "y"])),
)


@given(st.lists(step, max_size=40))
def test_whatever_happens_a_client_is_sent_only_to_its_home_while_that_is_steady(
    story: list[tuple[str, str, str]],
) -> None:
    guests = Guests(broker("here"))
    homes: dict[str, str] = {}
    answers: list[str] = []  # which home each beat named
    for kind, client, home in story:
        if kind == "came":
            guests.came(client, home, MQTT)
            homes.pop(client, None)
            if home != "here":
                homes[client] = home
        elif kind == "went":
            guests.went(client)
            homes.pop(client, None)
        else:
            answers.append(home)
            for guest, reference in beat(guests, *([home] if home else [])):
                assert reference == f"{homes.pop(guest)}:1883"
                assert answers[-STEADY:] == [home] * STEADY
    assert len(guests) == len(homes)
