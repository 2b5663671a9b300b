"""Who wants topics that overlap a filter: held against a model that compares everything with everything."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tocsin.core.filters import interest_of
from tocsin.core.streams.demand import Demand, FilterTree, anybody
from tocsin.wire.mqtt.topics import matches

LEVELS = ("a", "$x", "")
TOPICS = ["/".join(each) for depth in (1, 2, 3) for each in product(LEVELS, repeat=depth)]
WHO = ("anna", "ben", "cleo")

filters = st.builds(
    lambda levels, rest: "/".join([*levels, *(["#"] if rest or not levels else [])]),
    st.lists(st.sampled_from((*LEVELS, "+")), max_size=3),
    st.booleans(),
)
names = st.one_of(filters, filters.map(lambda each: f"$share/group/{each}"))


@cache
def overlap(one: str, other: str) -> bool:
    """Whether a topic matches both, of all the topics that these filters can tell apart."""
    return any(matches(one, topic) and matches(other, topic) for topic in TOPICS)


@settings(max_examples=100, deadline=None)
@given(st.sets(filters, max_size=12), filters)
def test_a_tree_finds_exactly_the_filters_that_overlap(held: set[str], asked: str) -> None:
    tree = FilterTree()
    for each in held:
        tree.add(each)
    found = list(tree.overlapping(asked))
    assert len(found) == len(set(found))
    assert set(found) == {each for each in held if overlap(each, asked)}
    for each in held:
        tree.remove(each)
    assert list(tree.overlapping("#")) == [] and not tree._root.children


class Wanting(RuleBasedStateMachine):
    """Questions, and what is wanted, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: Counter[tuple[str, str]] = Counter()
        self.asked: set[str] = set()
        self.told: dict[tuple[str, str], bool] = {}
        self.stirs = 0
        self.demand: Demand[str] = Demand(lambda: self.wanted.elements(), self.stir)

    def stir(self) -> None:
        self.stirs += 1

    @rule(who=st.sampled_from(WHO), name=names)
    def want(self, who: str, name: str) -> None:
        self.demand.want(who, (name,))
        self.wanted[who, name] += 1

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if held := sorted(self.wanted.elements()):
            who, name = data.draw(st.sampled_from(held))
            self.demand.release(who, (name,))
            self.wanted -= Counter([(who, name)])

    @rule(asked=filters)
    def ask(self, asked: str) -> None:
        self.demand.ask(asked)
        if asked not in self.asked:
            self.asked.add(asked)
            self.told.update(((who, asked), self.truth(who, asked)) for who in WHO)

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if self.asked:
            asked = data.draw(st.sampled_from(sorted(self.asked)))
            self.demand.withdraw(asked)
            self.asked.remove(asked)

    @rule()
    def settle(self) -> None:
        for asked, before, after in self.demand.settle():
            for who in WHO:
                assert self.told[who, asked] == anybody(before, who)
                self.told[who, asked] = anybody(after, who)
        assert all(self.told[who, asked] == self.truth(who, asked) for asked in self.asked for who in WHO)

    @invariant()
    def the_answer_is_right(self) -> None:
        assert len(self.demand) == len(self.asked)
        for asked, who in product(self.asked, WHO):
            assert self.demand.is_wanted(asked, who) == self.truth(who, asked)
        if not self.asked:
            assert self.demand.cost == 0

    def truth(self, who: str, asked: str) -> bool:
        return any(other != who and overlap(interest_of(name).pattern, asked) for other, name in self.wanted)


TestWanting = Wanting.TestCase
TestWanting.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_everything_is_indexed_once_however_often_somebody_asks() -> None:
    looked: list[None] = []

    def held() -> list[tuple[str, str]]:
        looked.append(None)
        return [("a", "hall/1")]

    demand: Demand[str] = Demand(held)
    demand.want("a", ["hall/1"])
    assert not looked, "who asks nothing pays nothing"
    for _ in range(3):
        demand.ask("hall/+")
        assert demand.is_wanted("hall/+", "b")
        demand.withdraw("hall/+")
    assert len(looked) == 1


def test_a_question_says_how_many_steps_it_took() -> None:
    demand: Demand[str] = Demand(lambda: [("a", f"hall/{number}/t") for number in range(100)])
    assert 200 <= demand.ask("hall/#") <= 400 and demand.ask("hall/#") == 0, "counted once"
    assert demand.ask("yard/#") <= 1
    assert demand.ask("hall/7/t") <= 5
    assert 100 <= demand.ask("+/+/x") <= 300, "also what is looked at in vain"
