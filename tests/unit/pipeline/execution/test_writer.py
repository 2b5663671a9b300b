"""What a task writes: for whom, in which order, and what it leaves out."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="install the extra tocsin[spark]")

from tocsin.pipeline.execution import writer as module  # noqa: E402
from tocsin.pipeline.execution.subscription_tables import Holders  # noqa: E402
from tocsin.pipeline.execution.writer import Running, TooManyResults, Writer, written  # noqa: E402
from tocsin.pipeline.storage.parts import TaskOutput  # noqa: E402
from tocsin.pipeline.storage.results import ResultsStore  # noqa: E402
from tocsin.results.reader import ResultsReader  # noqa: E402

K = ["a" * 24, "b" * 24, "c" * 24]
SETS = (("x",), ("y",), ("x", "y"))

Row = tuple[str, str, int | None, int | None, str]


def batch(*rows: Row) -> Any:
    schema = pa.schema(
        [
            ("_channel", pa.string()),
            ("_k", pa.string()),
            ("_rank", pa.int64()),
            ("_priority", pa.int32()),
            ("payload", pa.string()),
        ]
    )
    columns = zip(*rows, strict=True) if rows else [[]] * 5
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def run(
    tmp_path: Path, *batches: Any, changed: dict[str, tuple[str, ...]] | None = None
) -> dict[str, list[tuple[Any, ...]]]:
    """What each broker reads afterwards: (channel, execution, k, priority, payload)."""
    running = {"near:1": Running("Near", 7, 2), "far:1": Running("Far", 3, 0)}
    store = ResultsStore(tmp_path / "results")
    place = TaskOutput(str(store.root), 1, "run", 1_000)
    tasks = Writer(place, 5, running, Holders(SETS, changed or {}))
    parts, matched = written([tasks.write(batches, 0, 1)])
    notices = store.commit(1, parts, at_us=1_000).notices()
    reader = ResultsReader(store.root)
    found: dict[str, list[tuple[Any, ...]]] = {"matched": [tuple(sorted(matched.items()))]}
    for broker in ("x", "y"):
        found[broker] = [
            (each.channel, each.execution, each.k, each.priority, each.payload)
            for notice in notices
            for each in reader.read(notice, broker)
        ]
    return found


def test_rows_go_to_the_brokers_that_hold_their_k(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        batch(
            ("near:1", f"{K[0]}.0.{{}}", None, None, '{"n":1}'),
            ("far:1", f"{K[1]}.2.{{}}", None, 4, '{"n":2}'),
        ),
        batch(),
        batch(("near:1", f"{K[2]}.1.{{}}", None, None, '{"n":3}')),
    )
    assert found["x"] == [("Near", 7, K[0], 2, b'{"n":1}'), ("Far", 3, K[1], 4, b'{"n":2}')]
    assert found["y"] == [("Far", 3, K[1], 4, b'{"n":2}'), ("Near", 7, K[2], 2, b'{"n":3}')]
    assert found["matched"] == [(("Far", 1), ("Near", 2))]


def test_who_holds_a_k_now_overrules_who_did(tmp_path: Path) -> None:
    rows = batch(*(("near:1", f"{k}.0.{{}}", None, None, "{}") for k in K))
    found = run(tmp_path, rows, changed={K[0]: ("y",), K[1]: (), "d" * 24: ("x",)})
    assert [row[2] for row in found["y"]] == [K[0]]
    assert [row[2] for row in found["x"]] == [K[2]]


def test_rows_of_a_definition_that_is_not_run_are_left_out(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        batch(("near:0", f"{K[0]}.0.{{}}", None, None, "{}"), ("far:1", f"{K[0]}.0.{{}}", None, None, "{}")),
    )
    assert [row[0] for row in found["x"]] == ["Far"]


def test_rows_with_a_rank_are_written_in_its_order_over_all_batches(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        batch(("near:1", f"{K[1]}.0.{{}}", 2, None, "b2"), ("near:1", f"{K[0]}.0.{{}}", 3, None, "a3")),
        batch(("near:1", f"{K[0]}.0.{{}}", 1, None, "a1"), ("near:1", f"{K[1]}.0.{{}}", 1, None, "b1")),
    )
    assert [row[4] for row in found["x"]] == [b"a1", b"a3", b"b1", b"b2"]


def test_priorities_are_held_within_their_bounds(tmp_path: Path) -> None:
    rows = batch(*(("near:1", f"{K[0]}.0.{{}}", None, each, str(each)) for each in (-5, 0, 9, 1_000)))
    assert [row[3] for row in run(tmp_path, rows)["x"]] == [0, 0, 9, 9]


def test_a_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert run(tmp_path)["x"] == []
    assert not list((tmp_path / "results").glob("new/*"))


def test_more_results_than_a_task_may_have_are_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESULTS_MAX", 2)
    monkeypatch.setattr(module, "RANKED_MAX", 1)
    rows = [("near:1", f"{K[0]}.0.{{}}", None, None, "{}")] * 3
    with pytest.raises(TooManyResults, match="more than 2 results; give the query a condition"):
        run(tmp_path, batch(*rows))
    with pytest.raises(TooManyResults, match="more than 1 results"):
        run(tmp_path, batch(*[("near:1", f"{K[0]}.0.{{}}", 1, None, "{}")] * 2))


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["near:1", "far:1", "old:1"]), st.integers(0, 2), st.integers(0, 2)),
        max_size=20,
    ),
    changed=st.dictionaries(st.sampled_from(K), st.sampled_from([(), ("x",), ("y",), ("x", "y")])),
    cuts=st.lists(st.integers(0, 20), max_size=3),
)
def test_each_broker_gets_what_a_simple_loop_would_give_it(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, int, int]],
    changed: dict[str, tuple[str, ...]],
    cuts: list[int],
) -> None:
    texts = [
        (channel, f"{K[k]}.{number}.{{}}", None, None, str(index))
        for index, (channel, k, number) in enumerate(rows)
    ]
    bounds = sorted({0, len(texts), *(min(cut, len(texts)) for cut in cuts)})
    batches = [batch(*texts[start:end]) for start, end in itertools.pairwise(bounds)]
    found = run(tmp_path_factory.mktemp("written"), *batches, changed=changed)
    for broker in ("x", "y"):
        simple = [
            str(index).encode()
            for index, (channel, k, number) in enumerate(rows)
            if channel != "old:1" and broker in changed.get(K[k], SETS[number])
        ]
        assert [row[4] for row in found[broker]] == simple


def test_a_worker_sets_what_it_has_imported_aside_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Collector:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def collect(self) -> None:
            self.calls.append("collect")

        def freeze(self) -> None:
            self.calls.append("freeze")

    collector = Collector()
    monkeypatch.setattr(module, "gc", collector)
    module._settle.cache_clear()
    module._settle()
    module._settle()
    assert collector.calls == ["collect", "freeze"]
