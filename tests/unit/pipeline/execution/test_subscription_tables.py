"""The table of a template's subscriptions: what a query sees of it is what there is, through changes and folds."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="install the extra tocsin[spark]")

from tocsin.model.results import Value
from tocsin.pipeline.execution import subscription_tables as module
from tocsin.pipeline.execution.subscription_tables import Member, TemplateTable, row_values
from tocsin.pipeline.execution.subscriptions import HeldSubscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

NEAR, FAR = Member("Near", (1.5,), ("who",)), Member("Far", (2.5,), ("who",))
KS = [letter * 24 for letter in "abcdef"]
BROKERS = [("x",), ("y",), ("x", "y")]


class Later(Executor):
    """Does what it is given when it is told to."""

    def __init__(self) -> None:
        self.work: list[tuple[Future[Any], Any, Any]] = []

    def submit(self, call: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.work.append((future, call, arguments))
        return future

    def run(self) -> None:
        for future, call, arguments in self.work:
            future.set_result(call(*arguments))
        self.work.clear()


@pytest.fixture
def folder() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def rows(table: TemplateTable, *members: Member) -> dict[str, tuple[Any, ...]]:
    """k → channel, value, constant and brokers, as the writer would see them; without what nobody holds."""
    frame = table.frame([member.key for member in members])
    holders = table.holders()
    found: dict[str, tuple[Any, ...]] = {}
    for row in frame.collect() if frame is not None else ():
        k, number, values = row["_k"].split(".", 2)
        assert msgspec.json.decode(values) == {"who": row["p0"]}
        brokers = holders.changed.get(k, holders.sets[int(number)])
        if brokers:
            assert k not in found, "a row for each k"
            found[k] = (row["_channel"].partition(":")[0], row["p0"], row["c0"], brokers)
    return found


def made(spark: SparkSession, directory: Path, folder: Executor) -> TemplateTable:
    return TemplateTable(spark, directory, ["STRING"], ["DOUBLE"], folder)


def test_subscriptions_that_come_move_and_go(spark: SparkSession, tmp_path: Path, folder: Executor) -> None:
    table = made(spark, tmp_path, folder)
    held = {KS[0]: HeldSubscription(("a",), ("x",)), KS[1]: HeldSubscription(("b",), ("x", "y"))}
    table.join(NEAR, held)
    assert rows(table, NEAR) == {
        KS[0]: ("near", "a", 1.5, ("x",)),
        KS[1]: ("near", "b", 1.5, ("x", "y")),
    }
    held[KS[0]].brokers = ("y",)
    del held[KS[1]]
    held[KS[2]] = HeldSubscription(("c",), ("x",))
    table.change(NEAR, KS[:3], held)
    assert rows(table, NEAR) == {KS[0]: ("near", "a", 1.5, ("y",)), KS[2]: ("near", "c", 1.5, ("x",))}
    assert rows(table, FAR) == {} and table.frame([]) is not None
    table.close()


def test_values_that_do_not_fit_are_left_out_and_counted(
    spark: SparkSession, tmp_path: Path, folder: Executor
) -> None:
    table = made(spark, tmp_path, folder)
    table.join(
        NEAR,
        {
            KS[0]: HeldSubscription((5,), ("x",)),
            KS[1]: HeldSubscription(("b", "c"), ("x",)),
            KS[2]: HeldSubscription(("c",), ("x",)),
        },
    )
    assert set(rows(table, NEAR)) == {KS[2]} and table.invalid[NEAR.key] == 2
    table.close()


def test_other_constants_are_another_definition(
    spark: SparkSession, tmp_path: Path, folder: Executor
) -> None:
    table = made(spark, tmp_path, folder)
    held = {KS[0]: HeldSubscription(("a",), ("x",))}
    changed = Member("Near", (9.5,), ("who",))
    table.join(NEAR, held)
    table.join(changed, held)
    assert rows(table, changed) == {KS[0]: ("near", "a", 9.5, ("x",))}
    assert rows(table, NEAR) == {}
    table.close()


step = st.one_of(
    st.tuples(
        st.just("hold"), st.sampled_from([NEAR, FAR]), st.sampled_from(KS), st.sampled_from([*BROKERS, ()])
    ),
    st.tuples(st.sampled_from(["fold", "build", "folded"]), st.none(), st.none(), st.none()),
)


Steps = list[tuple[str, Any, Any, Any]]
_CALM = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=5, suppress_health_check=_CALM)
@given(steps=st.lists(step, max_size=14))
def test_a_query_sees_the_current_rows_also_during_a_fold(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, steps: Steps
) -> None:
    compare(spark, tmp_path_factory.mktemp("table"), steps)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=_CALM)
@given(steps=st.lists(step, max_size=14))
def test_a_query_sees_the_current_rows_also_during_a_fold_many_times(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, steps: Steps
) -> None:
    compare(spark, tmp_path_factory.mktemp("table"), steps)


def compare(spark: SparkSession, directory: Path, steps: Steps) -> None:
    later = Later()
    table = made(spark, directory, later)
    held: dict[str, dict[str, HeldSubscription]] = {NEAR.key: {}, FAR.key: {}}
    of_k = {k: (NEAR if number % 2 else FAR) for number, k in enumerate(KS)}  # a k is of one channel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FOLD_MIN", 0)
        patch.setattr(module.TemplateTable, "_adopt", _adopt_when_done)
        table.join(NEAR, held[NEAR.key])
        table.join(FAR, held[FAR.key])
        for kind, _, k, brokers in steps:
            if kind == "hold":
                member = of_k[k]
                if brokers:
                    held[member.key].setdefault(k, HeldSubscription((k,), brokers)).brokers = brokers
                else:
                    held[member.key].pop(k, None)
                table.change(member, [k], held[member.key])
            else:
                if kind != "fold":
                    later.run()  # the base is made; with ``build`` it is not taken over yet
                if kind != "build":
                    table.tend(held)
        for members in ((NEAR,), (NEAR, FAR)):
            expected = {
                k: (member.channel.lower(), k, member.constants[0], each.brokers)
                for member in members
                for k, each in held[member.key].items()
            }
            assert rows(table, *members) == expected
        later.run()
        table.close()


def _adopt_when_done(self: TemplateTable, *, wait: bool) -> None:
    """Never waits: the fold is done when the test says so."""
    if self._folding is not None and self._folding.done():
        _adopt(self, wait=True)


_adopt = TemplateTable._adopt


def test_holders_that_changed_while_the_base_was_built_are_known_afterwards(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FOLD_MIN", 0)
    monkeypatch.setattr(module.TemplateTable, "_adopt", _adopt_when_done)
    later = Later()
    table = made(spark, tmp_path, later)
    held = {KS[0]: HeldSubscription(("a",), ("x",)), KS[1]: HeldSubscription(("b",), ("x",))}
    table.join(NEAR, held)
    table.tend({NEAR.key: held})
    later.run()
    held[KS[0]].brokers = ("y",)
    del held[KS[1]]
    table.change(NEAR, KS[:2], held)
    table.tend({NEAR.key: held})
    assert table.folds == 1
    assert rows(table, NEAR) == {KS[0]: ("near", "a", 1.5, ("y",))}
    later.run()
    table.close()


@pytest.mark.parametrize(
    ("kind", "value", "row"),
    [
        ("STRING", "x", "x"),
        ("STRING", 5, None),
        ("BIGINT", 5, 5),
        ("BIGINT", 5.0, None),
        ("BIGINT", True, None),
        ("BIGINT", 1 << 63, None),
        ("DOUBLE", 5, 5.0),
        ("DOUBLE", 5.5, 5.5),
        ("BOOLEAN", True, True),
        ("BOOLEAN", 1, None),
        ("DATE", "2026-02-28", datetime.date(2026, 2, 28)),
        ("DATE", "2026-02-30", None),
        ("TIMESTAMP", "2026-02-28T12:00:00Z", datetime.datetime(2026, 2, 28, 12, tzinfo=datetime.UTC)),
        ("TIMESTAMP", "soon", None),
    ],
)
def test_values_become_their_columns(kind: Any, value: Value, row: Any) -> None:
    assert row_values([kind], (value,)) == (None if row is None else (row,))
