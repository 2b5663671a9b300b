"""What became of messages, by the numbers that arrived."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.client import AsyncClient
from tocsin.client.options import Connection
from tocsin_labs.landmark.crowd import Account, Arrival, Publisher, Stay, Subscriber, account, total


def subscriber(*numbers: int) -> Subscriber:
    found = Subscriber("one", ("127.0.0.1", 1), ["a"])
    found.arrivals = [Arrival(float(at), number) for at, number in enumerate(numbers)]
    return found


def test_lost_repeated_and_disordered_messages_are_counted_of_every_subscriber() -> None:
    found = account([subscriber(1, 3, 2, 2), subscriber(1, 2, 3, 4)], {1, 2, 3, 4})
    assert found == Account(due=8, lost=1, twice=1, disordered=2)
    assert total([found, found]) == Account(16, 2, 2, 4)


def test_messages_of_earlier_runs_do_not_count() -> None:
    assert account([subscriber(2, 1, 1, 5)], {1, 2, 3, 5, 6}, since=5) == Account(2, 1, 0, 0)


def test_one_that_was_not_acknowledged_is_owed_to_nobody() -> None:
    assert account([subscriber(1)], {1}) == Account(1, 0, 0, 0)
    assert account([subscriber(1, 2)], {1}) == Account(1, 0, 0, 0)


@given(st.lists(st.integers(1, 8), max_size=12), st.sets(st.integers(1, 8)))
def test_an_account_is_what_counting_by_hand_finds(numbers: list[int], acknowledged: set[int]) -> None:
    found = account([subscriber(*numbers)], acknowledged)
    assert found.lost == len([each for each in acknowledged if each not in numbers])
    assert found.twice == sum(numbers.count(each) - 1 for each in set(numbers))
    assert found.disordered == len(
        [at for at, each in enumerate(numbers) if any(e > each for e in numbers[:at])]
    )


def test_a_subscriber_is_back_and_served_at_the_first_moment_that_counts() -> None:
    one = subscriber(1, 2, 3)
    one.stays = [Stay(0.5, "a:1"), Stay(1.5, "b:1")]
    assert one.came_back(1.0) == 1.5
    assert one.came_back(2.0) is None
    assert one.served(2) == 1.0
    assert one.served(4) is None


def test_where_a_subscriber_is_can_be_said_in_words() -> None:
    one = Subscriber("one", ("127.0.0.1", 1), ["a"])
    one._moved(Connection(up=True, server="127.0.0.1:2"))
    assert one.stays[-1].server == "127.0.0.1:2"
    assert one.whereabouts({"127.0.0.1:1": "b1"}).endswith("and at home at b1 (127.0.0.1:1)")
    one._moved(Connection(up=False, server="127.0.0.1:2", reason="session taken over"))
    assert one.whereabouts({}) == "one is nowhere (session taken over), and will not try again"
    one._moved(Connection(up=False, server="127.0.0.1:2", reason="refused", retry_s=1.0))
    assert one.whereabouts({}).endswith("and tries again")
    assert len(one.stays) == 1


def test_a_message_that_expires_is_owed_to_nobody() -> None:
    client = AsyncClient("127.0.0.1:1")
    plain, mixed = Publisher(client, "a", 1.0), Publisher(client, "a", 1.0, expiry_s=1)
    plain.acknowledged = mixed.acknowledged = {1, 2, 3, 4}
    assert plain.owed == {1, 2, 3, 4}
    assert mixed.owed == {1, 3} and mixed.expires(2)
