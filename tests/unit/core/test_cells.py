"""One cell beside other writers: random histories against a store that loses answers and lets cells expire."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tocsin.core.cells import CellRules, CellWriter, Kind, Step
from tocsin.core.machine import DeleteKey, Effect, GetKey, PutKey, SetTimer, Stored, StoreFailed
from tocsin.errors import Conflict, OutcomeUnknown, StoreUnavailable, TocsinError
from tocsin.ports import Cell

KEY = "k"
OWNED = CellRules("t", "not stored yet", "again", 1, put="put", delete="delete", read="read")
LOOKING = CellRules("t", "not stored yet", "again", 1, put="put", delete="delete", read="read", looks=True)
LEARNT = CellRules("t", "not stored yet", "again", 1, put="put", delete="put", read="read", learns=True)

# What becomes of a request: it is answered; it is not done; it is done, and its answer is lost; it is done later,
# after its asker was told that nobody knows; and what may happen to the cell before it is done.
Fate = Literal["answered", "refused", "answer lost", "late"]
Happening = Literal["", "a rival writes", "it expires", "a late one is done"]
FATES = st.tuples(
    st.sampled_from(["answered", "refused", "answer lost", "late"]),
    st.sampled_from(["", "", "a rival writes", "it expires", "a late one is done"]),
)
OURS = b"ours "


class DumbStore:
    """A cell in a list: the last entry is what is there."""

    def __init__(self) -> None:
        self.history: list[tuple[int, bytes | None]] = [(0, None)]
        self.late: list[Effect] = []

    @property
    def cell(self) -> Cell | None:
        revision, value = self.history[-1]
        return None if value is None else Cell(KEY, value, revision)

    @property
    def revision(self) -> int:
        return 0 if self.cell is None else self.cell.revision

    def _add(self, value: bytes | None) -> int:
        self.history.append((max(revision for revision, _ in self.history) + 1, value))
        return self.history[-1][0]

    def happen(self, what: Happening) -> None:
        if what == "a late one is done" and self.late:
            self.do(self.late.pop(0))
        elif what == "a rival writes":
            self._add(b"a rival's")
        elif what == "it expires" and self.cell is not None:
            self._add(None)

    def do(self, effect: Effect) -> Stored | StoreFailed:
        match effect:
            case PutKey(request=request, value=value, revision=expected):
                if expected is not None and expected != self.revision:
                    return StoreFailed(request=request, error=Conflict("put", expected, self.revision))
                return Stored(request=request, value=self._add(value))
            case DeleteKey(request=request, revision=expected):
                if expected != self.revision:
                    return StoreFailed(
                        request=request, error=Conflict("delete", expected or 0, self.revision)
                    )
                self._add(None)
                return Stored(request=request)
            case GetKey(request=request, fresh=True):
                return Stored(request=request, value=self.cell)
        raise AssertionError(effect)

    def answer(self, effect: Effect, fate: Fate) -> Stored | StoreFailed:
        assert isinstance(effect, PutKey | DeleteKey | GetKey)
        error: TocsinError = OutcomeUnknown("ask", 1.0)
        if fate == "answered":
            return self.do(effect)
        if fate == "refused":
            error = StoreUnavailable("ask", "no leader")
        elif fate == "answer lost":
            self.do(effect)
        else:
            self.late.append(effect)
        return StoreFailed(request=effect.request, error=error)


def take(cell: CellWriter, answer: Stored | StoreFailed) -> Step:
    return cell.stored(answer) if isinstance(answer, Stored) else cell.failed(answer)


def decide(
    cell: CellWriter, store: DumbStore, asked: Effect, fates: Callable[[], tuple[Fate, Happening]]
) -> Step:
    """Let a request take its course until something is decided."""
    for _ in range(100):
        fate, happening = fates()
        store.happen(happening)
        if isinstance(asked, PutKey | DeleteKey):
            assert asked.revision == cell.revision, "nobody overwrites what it does not know"
        step = take(cell, store.answer(asked, fate))
        if step.kind == "failed":
            assert [each.name for each in step.effects if isinstance(each, SetTimer)] == ["again"]
            again = cell.again()
            assert again is not None
            asked = again
        elif step.kind == "under way":
            (asked,) = step.effects
        else:
            return step
    raise AssertionError("nothing was ever decided")


@pytest.mark.parametrize("rules", [OWNED, LOOKING, LEARNT], ids=["owned", "looking", "learnt"])
@example(script=[("late", ""), ("answered", ""), ("answered", "a late one is done")], writes=[True])
@given(script=st.lists(FATES, max_size=40), writes=st.lists(st.booleans(), min_size=1, max_size=6))
def test_each_write_happens_at_most_once_in_order_with_a_true_outcome(
    rules: CellRules, script: list[tuple[Fate, Happening]], writes: list[bool]
) -> None:
    store, left = DumbStore(), list(script)
    cell = CellWriter(rules, KEY)

    def fates() -> tuple[Fate, Happening]:
        return left.pop(0) if left else ("answered", "")  # at last the store is well, and nobody interferes

    for number, put in enumerate(writes):
        value = OURS + str(number).encode()
        known = cell.revision
        if put or not known:
            step = decide(cell, store, cell.write(value), fates)
        else:
            step = decide(cell, store, cell.remove(), fates)
        check(step, store, cell, value, known)
        if step.kind == "missing" and cell.busy:  # an owner's write is kept, and written anew
            step = decide(cell, store, cell.anew(), fates)
            check(step, store, cell, value, 0)
        if step.kind in ("overtaken", "missing") or store.revision != cell.revision:
            if cell.busy:
                cell.drop()
            step = decide(cell, store, cell.read(), fates)
            assert step.kind == "read" and step.cell == store.cell
        assert not cell.busy and not cell.unsure
    newest = b""
    for (_, before), (_, after) in pairwise(store.history):
        if after is not None and after.startswith(OURS):
            # Where there is no cell, a write that expects none may happen again.
            assert after > newest or before is None, "each write at most once, in the order they began"
            newest = after


def check(step: Step, store: DumbStore, cell: CellWriter, value: bytes, known: int) -> None:
    """What the writer says of a write is so, by the store's own account."""
    made = [revision for revision, each in store.history if each == value]
    if step.kind == "written":
        assert made[-1] == cell.revision and step.cell == Cell(KEY, value, cell.revision)
    elif step.kind == "removed":
        assert known not in (0, store.revision)
    elif step.kind == "overtaken":
        assert store.revision != known and (store.cell is None or store.cell.value != value)
    else:
        assert step.kind == "missing" and known and store.history[-1][0] != known


@pytest.mark.parametrize(
    ("rules", "kind"),
    [(OWNED, "overtaken"), (LEARNT, "under way")],
    ids=["owned", "learnt"],
)
def test_only_who_learns_looks_at_what_a_rival_wrote(rules: CellRules, kind: Kind) -> None:
    cell = CellWriter(rules, KEY, 7)
    cell.write(b"x")
    step = cell.failed(StoreFailed(request="put", error=Conflict("put", 7, 9)))
    assert step.kind == kind
    assert [type(each) for each in step.effects] == ([GetKey] if rules.learns else [])


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    cell = CellWriter(OWNED, KEY, 7)
    assert cell.stored(Stored(request="put", value=9)).kind == "ignored"
    cell.write(b"x")
    assert cell.stored(Stored(request="read", value=None)).kind == "ignored"
    assert cell.failed(StoreFailed(request="delete", error=Conflict("delete", 7, 9))).kind == "ignored"
    assert (cell.revision, cell.asked) == (7, "put")


def test_there_is_one_request_at_a_time() -> None:
    cell = CellWriter(OWNED, KEY)
    cell.write(b"x")
    with pytest.raises(AssertionError, match="one request at a time"):
        cell.write(b"y")
    with pytest.raises(AssertionError, match="one request at a time"):
        cell.remove()


def test_a_put_without_a_condition_is_repeated_until_its_revision_is_known() -> None:
    cell = CellWriter(CellRules("t", "not stored yet", "again", 1, conditional=False), KEY)
    put = cell.write(b"x")
    assert isinstance(put, PutKey) and (put.request, put.revision) == (KEY, None)
    assert cell.failed(StoreFailed(request=KEY, error=OutcomeUnknown("put", 1.0))).kind == "failed"
    cell.drop()
    assert cell.unsure, "it may be there"
    cell.write(b"x")
    assert cell.stored(Stored(request=KEY, value=5)).kind == "written"
    assert (cell.revision, cell.unsure) == (5, False)
