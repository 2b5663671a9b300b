"""The pure log and table against models that are too simple to be wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Conflict, Refused, StoreFull, Trimmed
from tocsin.ports import Change, LogSpec, Record, TableSpec
from tocsin.store.memory import state as state_module
from tocsin.store.memory.state import LogState, TableState
from tocsin.store.rules import matches

SECOND_US = 1_000_000

subjects = st.sampled_from(["l.a", "l.b", "l.a.x"])
patterns = subjects | st.sampled_from(["l.*", "l.a.>", "l.>"])
log_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(1, 30), min_size=1, max_size=4), subjects),
        st.tuples(st.just("read"), st.integers(0, 40), patterns),
        st.tuples(st.just("trim"), st.integers(0, 40), st.none() | patterns),
        st.tuples(st.just("wait"), st.integers(1, 5), st.none()),
    ),
    max_size=60,
)


class PlainLog:
    """A list of everything, searched from end to end."""

    def __init__(self, spec: LogSpec) -> None:
        self.spec = spec
        self.entries: list[tuple[int, str, str, int]] = []  # position, subject, id, when
        self.ids: dict[str, tuple[int, int]] = {}
        self.last = 0

    def append(self, ids: list[str], subject: str, now_us: int) -> tuple[int, ...]:
        window_us = int(self.spec.dedupe_window_s * SECOND_US)
        self.ids = {k: v for k, v in self.ids.items() if v[1] > now_us - window_us}
        for each in ids:
            if each not in self.ids:
                self.last += 1
                self.ids[each] = (self.last, now_us)
                self.entries.append((self.last, subject, each, now_us))
                mine = [entry for entry in self.entries if entry[1] == subject]
                bound = self.spec.max_per_subject
                if bound is not None and len(mine) > bound:
                    self.entries.remove(mine[0])
        self.expire(now_us)
        return tuple(self.ids[each][0] for each in ids)

    def expire(self, now_us: int) -> None:
        if self.spec.max_age_s is not None:
            horizon = now_us - int(self.spec.max_age_s * SECOND_US)
            self.entries = [entry for entry in self.entries if entry[3] > horizon]

    def trim(self, before: int, pattern: str | None) -> int:
        gone = [e for e in self.entries if e[0] < before and (pattern is None or matches(pattern, e[1]))]
        self.entries = [entry for entry in self.entries if entry not in gone]
        return len(gone)


@given(log_steps, st.none() | st.integers(1, 3), st.booleans())
def test_a_log_answers_as_a_plain_list_does(
    steps: list[tuple[str, Any, Any]], per_subject: int | None, aging: bool
) -> None:
    spec = LogSpec(
        "l",
        ("l.>",),
        max_per_subject=per_subject,
        max_age_s=9.0 if aging else None,
        dedupe_window_s=6.0,
    )
    log, plain, now_us = LogState(spec), PlainLog(spec), 100 * SECOND_US
    for verb, first, second in steps:
        if verb == "append":
            ids = [str(each) for each in first]
            records = [Record(second, b"", each) for each in ids]
            assert log.append(records, now_us) == plain.append(ids, second, now_us)
        elif verb == "trim":
            assert log.trim(now_us, before=first, subject=second) == plain.trim(first, second)
        elif verb == "wait":
            now_us += first * SECOND_US
            log.expire(now_us)
            plain.expire(now_us)
        else:
            oldest = plain.entries[0][0] if plain.entries else plain.last + 1
            if 0 < first < oldest and per_subject is None:
                with pytest.raises(Trimmed):
                    log.read(second, first)
                continue
            page = log.read(second, first)
            expected = [e[:3] for e in plain.entries if e[0] >= first and matches(second, e[1])]
            assert [(entry.position, entry.subject, entry.id) for entry in page.entries] == expected
            assert (page.next, page.last) == (max(first, plain.last + 1), plain.last)
    assert len(log) == len(plain.entries)
    assert log.oldest == (plain.entries[0][0] if plain.entries else plain.last + 1)


def test_a_log_of_bounded_bytes_drops_the_oldest() -> None:
    log = LogState(LogSpec("l", ("l.>",), max_bytes=1_000))
    for i in range(50):
        log.append([Record("l.a", b"x" * 100, str(i))], 0)
        assert log.bytes <= 1_000
    assert log.oldest == 51 - len(log)


def test_times_in_a_log_never_go_back() -> None:
    log = LogState(LogSpec("l", ("l.>",)))
    log.append([Record("l.a", b"", "1")], 500)
    log.append([Record("l.a", b"", "2")], 400)
    assert [entry.at_us for entry in log.read("l.a", 0).entries] == [500, 500]


def test_a_refused_append_changes_nothing() -> None:
    log = LogState(LogSpec("l", ("l.>",)))
    log.append([Record("l.a", b"", "1")], 0)
    with pytest.raises(Refused):
        log.append([Record("l.a", b"", "2"), Record("elsewhere", b"", "3")], 0)
    with pytest.raises(Conflict):
        log.append([Record("l.a", b"", "4"), Record("l.a", b"", "5")], 0, expected=0)
    assert log.last_position == 1
    assert log.append([Record("l.a", b"", "2")], 0) == (2,)


def test_trim_by_age_and_by_size_take_the_oldest_first() -> None:
    log = LogState(LogSpec("l", ("l.>",)))
    for i in range(10):
        log.append([Record("l.a", b"x" * 100, str(i))], i * SECOND_US)
    assert log.trim(9 * SECOND_US, older_than_us=5 * SECOND_US) == 4
    each = log.bytes // 6
    assert log.trim(9 * SECOND_US, keep_bytes=2 * each) == 4
    assert [entry.position for entry in log.read("l.a", 0).entries] == [9, 10]


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────

keys = st.sampled_from(["a", "b", "a.x"])
table_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, st.none() | st.integers(1, 4)),
        st.tuples(st.just("set"), keys, st.integers(0, 12)),
        st.tuples(st.just("delete"), keys, st.none() | st.integers(0, 12)),
        st.tuples(st.just("wait"), st.integers(1, 3), st.none()),
        st.tuples(st.just("look"), st.sampled_from(["", "a", "a."]), st.none()),
    ),
    max_size=60,
)


class PlainTable:
    """A dictionary of key → (revision, when it expires)."""

    def __init__(self) -> None:
        self.cells: dict[str, tuple[int, int | None]] = {}
        self.revision = 0

    def expire(self, now_us: int) -> None:
        due = sorted(
            (when, rev, k) for k, (rev, when) in self.cells.items() if when is not None and when <= now_us
        )
        for _, _, key in due:
            del self.cells[key]
            self.revision += 1

    def write(self, key: str, expires_us: int | None) -> int:
        self.revision += 1
        self.cells[key] = (self.revision, expires_us)
        return self.revision


@given(table_steps)
def test_a_table_answers_as_a_plain_dictionary_does(steps: list[tuple[str, Any, Any]]) -> None:
    table, plain, now_us = TableState(TableSpec("t")), PlainTable(), 0
    for verb, first, second in steps:
        plain.expire(now_us)
        actual = plain.cells.get(first, (0, None))[0]
        if verb == "put":
            ttl_us = None if second is None else second * SECOND_US
            expected = plain.write(first, None if ttl_us is None else now_us + ttl_us)
            assert table.put(first, b"", now_us, ttl_us) == expected
        elif verb == "set" and actual != second:
            with pytest.raises(Conflict):
                table.compare_and_set(first, b"", second, now_us)
        elif verb == "set":
            assert table.compare_and_set(first, b"", second, now_us) == plain.write(first, None)
        elif verb == "delete" and second is not None and actual != second:
            with pytest.raises(Conflict):
                table.delete(first, now_us, second)
        elif verb == "delete":
            table.delete(first, now_us, second)
            if plain.cells.pop(first, None):
                plain.revision += 1
        elif verb == "wait":
            now_us += first * SECOND_US
            table.expire(now_us)
            plain.expire(now_us)
        else:
            expected_keys = sorted(key for key in plain.cells if key.startswith(first))
            assert table.keys(first, now_us) == tuple(expected_keys)
            for key in ("a", "b", "a.x"):
                cell = table.get(key, now_us)
                assert (0 if cell is None else cell.revision) == plain.cells.get(key, (0, None))[0]
    assert table.revision == plain.revision
    assert len(table) == len(plain.cells)


@given(table_steps)
def test_snapshot_and_changes_rebuild_the_table(steps: list[tuple[str, Any, Any]]) -> None:
    table, now_us = TableState(TableSpec("t")), 0
    known: dict[str, int] = {}
    seen = 0
    for verb, first, second in steps:
        if verb == "put":
            table.put(first, b"", now_us, None if second is None else second * SECOND_US)
        elif verb == "delete":
            table.delete(first, now_us)
        elif verb == "wait":
            now_us += first * SECOND_US
            table.expire(now_us)
        changes = table.changes_since(seen)
        assert changes is not None
        assert [change.revision for change in changes] == list(range(seen + 1, table.revision + 1))
        seen = table.revision
        for change in changes:
            if change.kind == "put":
                known[change.key] = change.revision
            else:
                del known[change.key]
    snapshot = table.snapshot("", now_us)
    assert snapshot[0] == Change("reset")
    assert snapshot[-1] == Change("ready", revision=table.revision)
    assert {change.key: change.revision for change in snapshot[1:-1]} == known


def test_a_watcher_that_is_too_far_behind_is_told_to_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "CHANGES_KEPT", 5)
    table = TableState(TableSpec("t"))
    for _ in range(7):
        table.put("a", b"", 0)
    assert table.changes_since(2) is not None
    assert table.changes_since(1) is None


def test_a_full_table_takes_what_makes_it_no_larger() -> None:
    table = TableState(TableSpec("t", max_bytes=1_000))
    table.put("a", b"x" * 800, 0)
    with pytest.raises(StoreFull):
        table.put("b", b"x" * 800, 0)
    table.put("a", b"y" * 800, 0)
    table.delete("a", 0)
    table.put("b", b"x" * 800, 0)
    assert table.keys("", 0) == ("b",)


def test_renewed_leases_leave_no_pile_of_expiries() -> None:
    table = TableState(TableSpec("t"))
    for i in range(10_000):
        table.put("lease", b"", i, 10 * SECOND_US)
    assert len(table._expiries._heap) < 200
    assert table.next_expiry_us == 9_999 + 10 * SECOND_US
