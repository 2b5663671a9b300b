"""Budgets, against a model that knows nothing but lists of what was taken."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tocsin.config import Budgets
from tocsin.core.budgets.budget import SLACK, WORDS, Account, Bounds, Budget, Kind, Refusal, bounds_of

SMALL = Bounds(client=10, user=25, broker=40)
KINDS = st.sampled_from((Kind.COMMITS, Kind.PAGES))
SIZES = st.integers(0, 14)
USERS = st.sampled_from(("", "alice", "bob"))


def small() -> Budget:
    return Budget([SMALL] * len(Kind))


class Model(RuleBasedStateMachine):
    """Accounts that spend at random; what each has is also kept as a plain count."""

    accounts = Bundle("accounts")

    def __init__(self) -> None:
        super().__init__()
        self.budget = small()
        self.has: dict[Account, Counter[Kind]] = {}
        self.user: dict[Account, str | None] = {}
        self.asked: list[tuple[Account, Kind, int, list[int]]] = []

    def _sums(self, account: Account, kind: Kind) -> tuple[int, int, int]:
        own = self.has[account][kind]
        user = sum(h[kind] for a, h in self.has.items() if self.user[a] == self.user[account])
        return own, user, sum(h[kind] for h in self.has.values())

    def _first_short(self, account: Account, kind: Kind, size: int, *, slack: bool) -> str | None:
        limits = (SMALL.client, SMALL.user, SMALL.broker)
        for level, sum_, limit in zip(
            ("client", "user", "broker"), self._sums(account, kind), limits, strict=True
        ):
            if sum_ + size > limit + (limit // SLACK if slack else 0):
                return level
        return None

    @rule(target=accounts, user=st.none() | USERS)
    def come(self, user: str | None) -> Account:
        account = self.budget.account(user)
        self.has[account], self.user[account] = Counter(), user
        return account

    @rule(account=accounts, kind=KINDS, size=SIZES, here=st.booleans())
    def spend(self, account: Account, kind: Kind, size: int, here: bool) -> None:
        refusal = (account.charge if here else account.take)(kind, size)
        if account not in self.has or (account.retired and kind is Kind.PAGES):
            assert refusal is not None
            return
        short = self._first_short(account, kind, size, slack=here)
        assert (None if refusal is None else refusal.level) == short
        if refusal is None:
            self.has[account][kind] += size

    @rule(account=accounts, kind=KINDS, part=st.integers(0, 100))
    def give(self, account: Account, kind: Kind, part: int) -> None:
        if account not in self.has:
            account.give(kind, 1)  # it has given all back
            return
        size = self.has[account][kind] * part // 100
        self.has[account][kind] -= size
        account.give(kind, size)
        if account.retired and not self.has[account].total():
            assert account.closed
            del self.has[account]

    @rule(account=accounts, user=USERS)
    def belong(self, account: Account, user: str) -> None:
        if account in self.has:
            self.user[account] = user
        account.belong(user)

    @rule(account=accounts, kind=KINDS, size=st.integers(1, SMALL.client))
    def wait(self, account: Account, kind: Kind, size: int) -> None:
        called: list[int] = []
        self.asked.append((account, kind, size, called))
        account.when_room(kind, size, lambda: called.append(1))

    @rule(account=accounts)
    def retire(self, account: Account) -> None:
        account.retire()
        if account in self.has:
            self.has[account][Kind.PAGES] = 0
            if not self.has[account][Kind.COMMITS]:
                assert account.closed
                del self.has[account]

    @rule(account=consumes(accounts))
    def go(self, account: Account) -> None:
        self.has.pop(account, None)
        account.close()
        account.close()
        assert account.take(Kind.COMMITS, 1) is not None

    @invariant()
    def figures_are_the_sums(self) -> None:
        figures = self.budget.figures()
        for kind in (Kind.COMMITS, Kind.PAGES):
            assert figures[kind].used == sum(h[kind] for h in self.has.values())
            for account in self.has:
                own, user, broker = self._sums(account, kind)
                assert account.used(kind) == own
                rooms = (SMALL.client - own, SMALL.user - user, SMALL.broker - broker)
                assert account.room(kind) == max(0, min(rooms))
                assert account.over(kind) == (min(rooms) < 1)

    @invariant()
    def nobody_waits_for_room_that_is_there(self) -> None:
        for account, kind, size, called in self.asked:
            assert len(called) <= 1
            if account in self.has and not account.retired and not called:
                others = [a for a, k, _, c in self.asked if k is kind and not c and a is not account]
                # Who is first in every queue is called as soon as there is room.
                if not others and self._only(account, kind):
                    assert self._first_short(account, kind, size, slack=False) is not None

    def _only(self, account: Account, kind: Kind) -> bool:
        return sum(1 for a, k, _, c in self.asked if a is account and k is kind and not c) == 1

    def teardown(self) -> None:
        for account in list(self.has):
            account.close()
        assert all(figure.used == figure.waiting == 0 for figure in self.budget.figures().values())


TestBudget = Model.TestCase
TestBudget.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 10)), max_size=60))
def test_everybody_who_waits_is_called_once_in_order_of_asking(asked: list[tuple[int, int]]) -> None:
    budget = small()
    holder = [budget.account(name) for name in ("one", "two", "three", "four")]
    for account in holder:
        assert account.take(Kind.PAGES, 10) is None
    called: list[int] = []
    waiting = [budget.account(f"waiter {number}") for number in range(6)]
    for index, (number, size) in enumerate(asked):
        waiting[number].when_room(Kind.PAGES, size, partial(called.append, index))
    assert not called
    for account in holder:
        account.close()
    assert called == list(range(len(asked)))


def test_a_refusal_names_the_budget_its_owner_and_its_setting() -> None:
    refusal = small().account("alice").take(Kind.COMMITS, 11)
    assert refusal == Refusal(Kind.COMMITS, "client", 10)
    assert str(refusal) == (
        "this client's budget for messages that wait for the store is exhausted: 10 bytes (budgets.commits_bytes)"
    )


def test_clients_of_one_user_share_and_others_are_not_concerned() -> None:
    budget = small()
    alice = [budget.account("alice") for _ in range(3)]
    assert [a.take(Kind.PAGES, 10) for a in alice] == [None, None, Refusal(Kind.PAGES, "user", 25)]
    assert budget.account("bob").take(Kind.PAGES, 10) is None


def test_whoever_is_called_may_take_and_the_next_waits_on() -> None:
    budget = small()
    account = budget.account("alice")
    assert account.take(Kind.PAGES, 10) is None
    taken: list[int] = []

    def take(size: int) -> None:
        assert account.take(Kind.PAGES, size) is None
        taken.append(size)

    account.when_room(Kind.PAGES, 8, lambda: take(8))
    account.when_room(Kind.PAGES, 9, lambda: take(9))
    account.give(Kind.PAGES, 10)
    assert taken == [8]
    account.give_all(Kind.PAGES)
    assert taken == [8, 9]


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_a_setting_and_words_and_holds_a_largest_packet(kind: Kind) -> None:
    least = Budgets(**{f"{each.name.lower()}_bytes": 16 << 20 for each in Kind}, client_percent=10)
    bounds = bounds_of(least)[kind]
    assert (1 << 20) + (64 << 10) < bounds.client <= bounds.user <= bounds.broker == 16 << 20
    assert kind in WORDS


def test_what_was_given_back_with_the_connection_is_not_given_back_twice() -> None:
    budget = Budget([Bounds(100, 100, 100)] * len(Kind))
    account = budget.account("alice")
    assert account.take(Kind.SESSIONS, 10) is None and account.take(Kind.COMMITS, 10) is None
    account.retire()
    account.give(Kind.SESSIONS, 10)  # a SUBACK that comes late
    assert budget.figures()[Kind.SESSIONS].used == 0 and budget.figures()[Kind.COMMITS].used == 10
    account.give(Kind.COMMITS, 10)
    assert account.closed
