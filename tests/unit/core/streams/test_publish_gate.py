"""What a client publishes goes on in order, behind what has to be known before it."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.streams import publish_gate as module
from tocsin.core.streams.publish_gate import Action, Declare, Go, PublishGate
from tocsin.model.stream import Diff


def make(streams_max: int = 100) -> PublishGate[str]:
    return PublishGate(streams_max, count(1).__next__)


def take(
    gate: PublishGate[str], item: str, topic: str | None, diff: Diff | None = None, commits: bool = False
) -> list[Action[str]]:
    return gate.take(item, topic=topic, diff=diff, size=10, commits=commits)


def test_a_first_message_waits_for_its_stream_and_later_ones_pass() -> None:
    gate = make()
    assert take(gate, "first", "a") == [Declare(1, "a", {}, True)]
    assert "a" in gate.topics and "a" not in gate.ready
    assert gate.clear(1) == [Go(["first"])]
    assert "a" in gate.ready


def test_a_burst_of_first_messages_is_declared_together_and_keeps_order() -> None:
    gate = make()
    for number in range(1, 4):
        assert take(gate, f"m{number}", f"a/{number}") == [Declare(number, f"a/{number}", {}, True)]
    assert take(gate, "m4", "a/1") == []
    assert gate.clear(2) == [Go(["m1", "m2"])]
    assert gate.clear(3) == [Go(["m3", "m4"])]


def test_a_change_is_declared_when_the_messages_before_it_are_durable() -> None:
    gate = make()
    take(gate, "m1", "a", commits=True)
    assert gate.clear(1) == [Go(["m1"])]
    assert take(gate, "m2", "a", {"kind": "lamp"}) == [], "the first one is on its way into the log"
    assert gate.settled() == [Declare(2, "a", {"kind": "lamp"}, True)]
    assert take(gate, "m3", "a") == []
    assert gate.clear(2) == [Go(["m2", "m3"])]


def test_a_change_of_an_idle_stream_is_declared_at_once() -> None:
    gate = make()
    take(gate, "m1", "a", commits=True)
    gate.clear(1)
    gate.settled()
    assert gate.describe("a", {"kind": "lamp"}, "note") == [Declare(2, "a", {"kind": "lamp"}, False, "note")]
    assert take(gate, "m2", "a") == [] and gate.clear(2) == [Go(["m2"])]


def test_what_the_shell_sends_past_the_gate_counts_as_under_way() -> None:
    gate = make()
    take(gate, "m1", "a")
    gate.clear(1)
    gate.sent()
    assert gate.describe("a", None, None) == []
    assert gate.settled() == [Declare(2, "a", None, False)]


def test_the_end_comes_when_everything_is_durable() -> None:
    gate = make()
    take(gate, "m1", "a", commits=True)
    assert gate.end("end") == []
    assert gate.clear(1) == [Go(["m1"])]
    assert gate.settled() == [Go(["end"])]
    assert make().end("end") == [Go(["end"])]


def test_a_message_that_makes_no_stream_only_keeps_its_place() -> None:
    gate = make()
    assert take(gate, "will", None) == [Go(["will"])]
    take(gate, "m1", "a")
    assert take(gate, "will", None) == []
    assert gate.clear(1) == [Go(["m1", "will"])]
    assert gate.topics == {"a"}


def test_there_is_room_for_so_many_streams() -> None:
    gate = make(streams_max=1)
    before = gate.room
    take(gate, "m", "a")
    assert (before, gate.room) == (True, False)


def test_it_is_full_when_too_many_messages_or_too_many_bytes_wait() -> None:
    gate = make()
    fullness = []
    for _ in range(module.HELD_MAX):
        take(gate, "m", "a")
        fullness.append(gate.full)
    assert fullness == [False] * (module.HELD_MAX - 1) + [True]
    gate.clear(1)
    fullness = [gate.full]
    gate.take("large", topic="a", diff={"kind": "x"}, size=module.HELD_MAX_BYTES, commits=False)
    assert [*fullness, gate.full] == [False, True]


class Shell:
    """Does what the gate says, and writes down what happened."""

    def __init__(self) -> None:
        self.gate: PublishGate[int] = PublishGate(100, count(1).__next__)
        self.declared: list[Declare] = []
        self.gone: list[int] = []
        self.commits: set[int] = set()  # messages that are made durable
        self.under_way: list[int] = []

    def do(self, actions: list[Action[int]]) -> None:
        for place, action in enumerate(actions):
            if isinstance(action, Declare):
                assert place == len(actions) - 1
                self.declared.append(action)
            else:
                for number in action.items:
                    self.gone.append(number)
                    if number in self.commits:
                        self.under_way.append(number)


steps = st.lists(
    st.tuples(
        st.sampled_from(("take", "take", "take", "change", "describe", "clear", "settle", "past")),
        st.sampled_from("abc"),
        st.booleans(),
    ),
    max_size=60,
)


@given(steps)
def test_nothing_overtakes_and_nothing_goes_before_its_time(history: list[tuple[str, str, bool]]) -> None:
    shell = Shell()
    gate = shell.gate
    cleared = 0
    entered: list[tuple[int, str, bool]] = []  # number, topic, whether it changes its stream
    said: dict[str, int] = {}  # how many changes of a topic were asked for
    for kind, topic, commits in history:
        number = len(entered)
        before = len(shell.declared)
        match kind:
            case "take" | "change":
                diff = {"n": number} if kind == "change" else None
                fresh = topic not in gate.topics
                if commits:
                    shell.commits.add(number)
                entered.append((number, topic, fresh or diff is not None))
                said[topic] = said.get(topic, 0) + (fresh or diff is not None)
                shell.do(gate.take(number, topic=topic, diff=diff, size=1, commits=commits))
                assert not fresh or len(shell.declared) == before + 1, "a new stream is declared at once"
            case "describe":
                said[topic] = said.get(topic, 0) + 1
                shell.do(gate.describe(topic, {"d": number}, None))
            case "clear" if cleared < len(shell.declared):
                cleared += 1
                shell.do(gate.clear(cleared))
            case "settle" if shell.under_way:
                shell.under_way.pop(0)
                shell.do(gate.settled())
            case "past" if topic in gate.ready:
                gate.sent()
                shell.under_way.append(-1)
        assert [each.ticket for each in shell.declared] == list(range(1, len(shell.declared) + 1))
        assert shell.gone == list(range(len(shell.gone))), "in order"
        assert (gate.ready == gate.topics) == (len(gate) == 0) or not gate.topics
        for each, its_topic, changes in entered[: len(shell.gone)]:
            if changes:
                own = [d for d in shell.declared if d.topic == its_topic and d.ticket <= cleared]
                assert own, f"{each} went before its stream was clear"
    while len(shell.gone) < len(entered) or len(gate) or shell.under_way:
        if shell.under_way:
            shell.under_way.pop(0)
            shell.do(gate.settled())
        else:
            shell.do(gate.clear(len(shell.declared)))
    assert shell.gone == [number for number, _, _ in entered]
    assert {topic: len([d for d in shell.declared if d.topic == topic]) for topic in said} == said
