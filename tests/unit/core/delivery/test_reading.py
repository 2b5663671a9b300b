"""How the log is read: when a reader is made, what is covered, and how coarse it gets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.reading import CALM_US, FAR, HURRY_US, SWITCHES_MAX, Reading
from tocsin.core.delivery.wanted import ALL_FILTERS, Level

SECOND = 1_000_000


def begun(reading: Reading, now_us: int = 0) -> tuple[str, ...]:
    """Make the reader that is due, and have it begin."""
    plan = reading.plan(now_us)
    assert plan is not None
    reading.begun()
    return plan


def test_without_clients_nothing_is_read() -> None:
    reading = Reading()
    assert not reading.covers("a")
    assert begun(reading) == ()
    assert reading.plan(0) is None and reading.settled


def test_a_missing_filter_is_covered_when_its_reader_begins() -> None:
    reading = Reading()
    begun(reading)
    reading.tail = 17
    reading.want("a/+", 0)
    assert not reading.covers("a/+") and reading.horizon(["a/+"]) == FAR
    assert reading.plan(0) == ("a/+",)
    assert reading.plan(0) is None, "one at a time"
    assert not reading.covers("a/+")
    reading.begun()
    assert reading.covers("a/+") and reading.covers("a/b") and not reading.covers("b")
    assert reading.horizon(["a/b", "a/c"]) == reading.horizon([]) == 17
    assert reading.horizon(["a/b", "b"]) == FAR


def test_what_comes_while_a_reader_is_prepared_gets_the_next() -> None:
    reading = Reading()
    reading.want("a", 0)
    assert reading.plan(0) == ("a",)
    reading.want("b", 0)
    reading.begun()
    assert reading.covers("a") and not reading.covers("b")
    assert set(begun(reading)) == {"a", "b"}


def test_a_covered_filter_needs_no_reader() -> None:
    reading = Reading()
    reading.want("a/#", 0)
    begun(reading)
    reading.want("a/b", 0)
    assert reading.plan(0) is None and reading.settled


def test_a_filter_that_is_given_up_is_read_on_for_a_while() -> None:
    reading = Reading()
    reading.want("a", 0)
    reading.want("b", 0)
    begun(reading)
    reading.unwant("b")
    assert reading.plan(CALM_US - 1) is None and reading.covers("b") and not reading.settled
    assert begun(reading, CALM_US) == ("a",)
    assert not reading.covers("b")


def test_a_filter_that_comes_back_must_be_covered_anew() -> None:
    reading = Reading()
    reading.want("a", 0)
    begun(reading)
    reading.unwant("a")
    assert begun(reading, CALM_US) == ()
    reading.want("a", CALM_US)
    assert not reading.covers("a")
    assert begun(reading, CALM_US) == ("a",)


def test_a_reader_without_a_filter_that_came_back_does_not_begin() -> None:
    reading = Reading()
    reading.want("a", 0)
    reading.want("b", 0)
    begun(reading)
    reading.unwant("a")
    assert reading.plan(CALM_US) == ("b",)
    assert reading.may_begin()
    reading.want("a", CALM_US)
    assert reading.covers("a") and not reading.may_begin()
    reading.given_up()
    assert reading.plan(2 * CALM_US) is None and reading.covers("a")


def test_a_burst_of_filters_makes_few_readers() -> None:
    reading = Reading()
    begun(reading)
    for number in range(10_000):
        reading.want(f"{number % 500}/{number}", number)
        if reading.plan(number) is not None:
            reading.begun()
        assert reading.covers(f"{number % 500}/{number}")
    assert reading.filters == ALL_FILTERS
    assert reading.switches <= 2 * SWITCHES_MAX + 2


def test_after_a_burst_it_is_read_more_finely_step_by_step() -> None:
    reading = Reading()
    for number in range(40):
        reading.want(f"{number}/x", number)
        if reading.plan(number) is not None:
            reading.begun()
    assert reading.filters == ALL_FILTERS
    assert reading.plan(CALM_US) is None
    later = 40 + CALM_US
    assert set(begun(reading, later)) == {f"{number}/x" for number in range(40)}
    assert reading.level is Level.EXACT and reading.settled


def test_filters_that_keep_changing_below_one_level_are_read_by_it() -> None:
    reading, now_us = Reading(), 0
    reading.want("other/a", 0)
    for number in range(100):
        now_us += SECOND
        reading.want(f"reply/{number}", now_us)
        if number > 5:
            reading.unwant(f"reply/{number - 5}")
        if reading.plan(now_us) is not None:
            reading.begun()
        assert reading.covers(f"reply/{number}")
    assert set(reading.filters or ()) == {"reply/#", "other/#"}
    assert reading.switches < 12


def test_readers_that_are_made_now_and_then_stay_exact() -> None:
    reading, now_us = Reading(), 0
    for number in range(20):
        now_us += HURRY_US // SWITCHES_MAX + 1
        reading.want(f"a/{number}", now_us)
        begun(reading, now_us)
    assert reading.level is Level.EXACT


def test_everything_is_read_where_the_setting_says_so() -> None:
    reading = Reading("all")
    reading.want("a", 0)
    assert begun(reading) == ALL_FILTERS
    reading.want("b", 0)
    assert reading.covers("b") and reading.plan(100 * CALM_US) is None and reading.settled


def test_a_promise_stops_whoever_reads_until_it_is_covered() -> None:
    reading = Reading()
    reading.want("a", 0)
    begun(reading)
    reading.want("b", 0)
    assert reading.plan(0) is not None
    assert reading.promise(["b"])
    assert reading.preparing is None and not reading.covers("a")
    assert set(begun(reading)) == {"a", "b"}
    assert reading.covers("b")


def test_a_promise_that_the_next_reader_keeps_stops_nobody() -> None:
    reading = Reading()
    reading.want("a/+", 0)
    assert reading.promise(["a/+"])
    assert reading.plan(0) == ("a/+",)
    assert not reading.promise(["a/b"])
    assert reading.promise(["c"])


class Shell:
    """A log, a reader that brings it late, and what was dispatched: what is covered must not be missed."""

    def __init__(self) -> None:
        self.reading = Reading()
        self.log: list[str] = []  # the topic at each position, from 1
        self.promised: dict[str, int] = {}  # filter → everything behind this position is its due
        self.got: dict[str, set[int]] = {}
        self.now_us = 0

    def want(self, name: str) -> None:
        self.reading.want(name, self.now_us)

    def pump(self) -> None:
        """The reader in force brings one more position."""
        reading = self.reading
        if reading.filters is None or reading.tail >= len(self.log):
            return
        topic = self.log[reading.tail]
        reading.tail += 1
        if reading.covers(topic):
            for name in self.promised:
                if name == topic:
                    self.got.setdefault(name, set()).add(reading.tail)


@given(
    st.lists(
        st.sampled_from(["want a", "want b", "drop a", "drop b", "say a", "say b", "pump", "plan", "begin"])
    )
)
def test_whatever_happens_nothing_that_is_due_is_missed(steps: list[str]) -> None:
    shell, held = Shell(), set[str]()
    for step in steps:
        act, _, name = step.partition(" ")
        shell.now_us += 3 * SECOND
        match act:
            case "want" if name not in held:
                held.add(name)
                shell.want(name)
                if shell.reading.covers(name):
                    shell.promised[name] = shell.reading.tail
            case "drop" if name in held:
                held.remove(name)
                shell.reading.unwant(name)
                shell.promised.pop(name, None)
                shell.got.pop(name, None)
            case "say":
                shell.log.append(name)
            case "pump":
                shell.pump()
            case "plan":
                shell.reading.plan(shell.now_us)
            case "begin" if shell.reading.preparing is not None and not shell.reading.may_begin():
                shell.reading.given_up()
            case "begin" if shell.reading.preparing is not None:
                shell.reading.begun()
                for each in held - shell.promised.keys():
                    if shell.reading.covers(each):
                        shell.promised[each] = shell.reading.tail
        for each, since in shell.promised.items():
            due = {p for p in range(since + 1, shell.reading.tail + 1) if shell.log[p - 1] == each}
            assert due <= shell.got.get(each, set())
