"""Hints about brokers that are gone: what has to agree, what ends them, and how long they count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.survival.detection import AGAIN_US, ASKS_MAX, HINT_US, Detector, Hints, Tuning

SECOND = 1_000_000
TUNING = Tuning(phi=6.0, least_us=SECOND, most_us=5 * SECOND, heartbeat_us=SECOND // 2)


class Case:
    """Hints about broker x, with a bus that finds it or not."""

    def __init__(self) -> None:
        self.hints = Hints()
        self.now_us = 0
        self.asks = 0
        self.gone: tuple[str, ...] = ()

    def tell(self, witness: str, *, refused: bool = False) -> None:
        self.asks += self.hints.told("x", witness, refused=refused, now_us=self.now_us)

    def answer(self, *, absent: bool = True) -> None:
        self.gone = self.gone or self.hints.answered("x", absent=absent, now_us=self.now_us)

    def go_on(self, for_us: int) -> None:
        """The bus finds nobody, whenever it is asked."""
        until_us = self.now_us + for_us
        while (next_us := self.hints.next_us) is not None and next_us <= until_us:
            self.now_us = max(self.now_us, next_us)
            for _ in self.hints.due(self.now_us):
                self.asks += 1
                self.answer()
        self.now_us = until_us


def test_two_closed_links_and_an_empty_bus_agree() -> None:
    case = Case()
    case.tell("a")
    case.tell("b")
    case.answer()
    assert not case.gone, "once may be a moment in which it reconnects"
    case.go_on(AGAIN_US)
    assert case.gone == ("a", "b")
    assert len(case.hints) == 0


def test_one_closed_link_is_not_enough() -> None:
    case = Case()
    case.tell("a")
    case.answer()
    case.go_on(10 * SECOND)
    assert case.gone == ()
    assert case.asks == ASKS_MAX
    assert len(case.hints) == 0


def test_one_peer_that_is_refused_is_enough() -> None:
    case = Case()
    case.tell("a")
    case.answer()
    case.go_on(2 * AGAIN_US)
    case.tell("a", refused=True)
    case.go_on(AGAIN_US)
    assert case.gone == ("a",)


def test_a_broker_that_the_bus_finds_is_cleared() -> None:
    case = Case()
    case.tell("a", refused=True)
    case.tell("b", refused=True)
    case.answer(absent=False)
    case.go_on(SECOND)
    assert case.gone == () and len(case.hints) == 0


def test_a_broker_that_is_heard_is_cleared() -> None:
    case = Case()
    case.tell("a", refused=True)
    case.answer()
    case.hints.heard("x")
    case.go_on(SECOND)
    assert case.gone == ()


def test_hints_of_long_ago_do_not_count() -> None:
    case = Case()
    case.tell("a")
    case.answer()
    case.now_us += HINT_US + 1
    case.tell("b")
    case.go_on(SECOND)
    assert case.gone == ()


def test_an_answer_that_nobody_asked_for_is_nothing() -> None:
    case = Case()
    case.answer()
    assert case.gone == () and len(case.hints) == 0


@given(st.lists(st.tuples(st.sampled_from(["closed", "refused", "found", "heard"]), st.integers(0, 5))))
def test_whoever_was_found_last_is_never_gone(story: list[tuple[str, int]]) -> None:
    case = Case()
    for happening, witness in story:
        case.now_us += 1_000
        match happening:
            case "closed" | "refused":
                case.tell(f"w{witness}", refused=happening == "refused")
            case "found":
                case.answer(absent=False)
            case "heard":
                case.hints.heard("x")
    assert case.gone == ()


def test_a_detector_suspects_whoever_vanished_once() -> None:
    detector = Detector(TUNING, 0)
    detector.sign("x", 0)
    assert detector.closed("x", "a", refused=True, now_us=1_000)
    assert detector.answered("x", absent=True, now_us=2_000) is None
    assert detector.hints.due(2_000 + AGAIN_US) == ["x"]
    suspicion = detector.answered("x", absent=True, now_us=2_000 + AGAIN_US)
    assert suspicion is not None and suspicion.witnesses == ("a",)
    assert detector.is_suspect("x")
    assert not detector.closed("x", "b", refused=True, now_us=3_000 + AGAIN_US), "it is known"
    detector.sign("x", 4_000 + AGAIN_US)
    assert not detector.is_suspect("x")
