"""How clients get to their brokers from the door: redirected, passed on, never in a circle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.door.test_choice import broker, directory
from tocsin.core.door.callers import Caller
from tocsin.core.door.choice import Directory
from tocsin.core.door.door import (
    AVOID_US,
    RETURN_US,
    TRIED_US,
    VISITS_MAX,
    Door,
    PassOn,
    Proxy,
    Redirect,
    Refuse,
)
from tocsin.model.network import Scheme
from tocsin.wire.mqtt.connect import V311

SECOND_US = 1_000_000
NETWORK = directory(broker("a"), broker("b"), broker("c"))


def stranger(**changes: object) -> Caller:
    return Caller(**{"client": "c", "source": "10.0.0.1", **changes})  # type: ignore[arg-type]


def reference(answer: object) -> str:
    assert isinstance(answer, Redirect), answer
    return answer.reference


def passed_to(answer: object) -> str:
    assert isinstance(answer, PassOn), answer
    return answer.candidates[0].broker.id


def test_client_that_comes_again_is_passed_on() -> None:
    door = Door("auto")
    assert reference(door.answer(stranger(), NETWORK, 0)) == "a:1883"
    assert passed_to(door.answer(stranger(), NETWORK, SECOND_US)) == "a"
    assert isinstance(door.answer(stranger(source="10.0.0.2"), NETWORK, SECOND_US), Redirect)
    assert isinstance(door.answer(stranger(), NETWORK, RETURN_US + 1), Redirect)


def test_clients_without_an_id_are_one_client_of_their_address() -> None:
    door = Door("auto")
    assert isinstance(door.answer(stranger(client=""), NETWORK, 0), Redirect)
    assert isinstance(door.answer(stranger(client=""), NETWORK, 1), PassOn)


def test_older_client_is_always_passed_on() -> None:
    assert isinstance(Door("auto").answer(stranger(version=V311), NETWORK, 0), PassOn)
    refused = Door("never").answer(stranger(version=V311), NETWORK, 0)
    assert isinstance(refused, Refuse)
    assert "door.proxy" in refused.reason


def test_passed_on_client_stays_with_its_broker() -> None:
    door = Door("auto")
    first = passed_to(door.answer(stranger(version=V311), NETWORK, 0))
    door.reached(stranger(), "b")
    assert first == "a"
    assert passed_to(door.answer(stranger(version=V311), NETWORK, SECOND_US)) == "b"


def test_silent_broker_is_tried_last_for_a_while() -> None:
    door = Door("always")
    door.silent("a", 0)
    assert passed_to(door.answer(stranger(), NETWORK, AVOID_US - 1)) == "b"
    assert passed_to(door.answer(stranger(client="d", home="a"), NETWORK, AVOID_US)) == "a"


def test_client_with_the_door_as_home_is_moved_for_good() -> None:
    door = Door("auto", own=("door:1882",))
    answer = door.answer(stranger(home="door:1882", follows=True), NETWORK, 0)
    assert isinstance(answer, Redirect)
    assert answer.moved
    there = door.answer(stranger(client="d", home="b", follows=True), NETWORK, 0)
    assert isinstance(there, Redirect)
    assert (there.reference, there.moved) == ("b:1883", False)
    yet = door.answer(stranger(client="e", home="not-joined-yet:1883", follows=True), NETWORK, 0)
    assert isinstance(yet, Redirect)
    assert not yet.moved


def test_client_that_cannot_reach_its_broker_is_passed_on() -> None:
    answer = Door("auto").answer(stranger(home="b", follows=True, stays=True), NETWORK, 0)
    assert passed_to(answer) == "b"


def test_client_over_tls_is_never_sent_to_plain_entrances() -> None:
    secure = stranger(scheme=Scheme.MQTTS)
    assert isinstance(Door("auto").answer(secure, NETWORK, 0), PassOn)  # over the brokers' own TLS
    assert isinstance(Door("never").answer(secure, NETWORK, 0), Refuse)


def test_nobody_is_sent_where_nobody_is() -> None:
    assert Door("auto").answer(stranger(), directory(), 0) == Refuse("this coordinator knows of no broker")
    full = directory(broker("a"), loads={"a": 1_000})
    assert Door("auto").answer(stranger(), full, 0) == Refuse("no broker has room for clients")


def test_memory_of_visits_is_bounded() -> None:
    door = Door("auto")
    for number in range(VISITS_MAX + 10):
        door.answer(stranger(client=str(number)), NETWORK, 0)
    assert len(door._visits) == VISITS_MAX


networks: list[Directory] = [
    NETWORK,
    directory(broker("a")),
    directory(broker("b"), broker("c"), lost={"a": "b"}),
    directory(broker("a"), broker("b"), broker("c"), loads={"a": 1_000}),
]
knocks = st.tuples(
    st.integers(0, TRIED_US),  # after the one before
    st.sampled_from(networks),
    st.sampled_from(("", "a", "b:1883", "door:1882")),
    st.booleans(),
)


@given(st.lists(knocks, max_size=20), st.sampled_from(("auto", "always")))
def test_no_client_is_sent_in_a_circle(said: list[tuple[int, Directory, str, bool]], proxy: Proxy) -> None:
    """A dumb account: nobody is redirected to one broker twice in TRIED_US, strangers once in RETURN_US."""
    door, now_us = Door(proxy), 0
    sent: dict[str, int] = {}
    for delay_us, network, home, follows in said:
        now_us += delay_us
        answer = door.answer(stranger(home=home, follows=follows), network, now_us)
        if not isinstance(answer, Redirect):
            continue
        name = answer.chosen.broker.id
        assert name in network.able
        assert name not in sent or now_us - sent[name] > TRIED_US
        assert follows or not any(now_us - at_us <= RETURN_US for at_us in sent.values())
        sent[name] = now_us
