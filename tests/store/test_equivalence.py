"""JetStream against the twin: whatever is done to both, both answer the same."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tocsin.errors import TocsinError
from tocsin.ports import Cell, Log, LogSpec, Page, Record, Store, Table, TableSpec
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.memory.store import MemoryStore
from tocsin.store.servers.testing import LocalServers

QUICK = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
LONG = settings(QUICK, max_examples=1_500)
CLUSTER = settings(QUICK, max_examples=150)  # a replicated stream takes about ten times as long to make

_numbers = itertools.count(1)

Step = tuple[str, dict[str, Any]]

subjects = st.sampled_from(["a", "b", "a.x", "a.y", "b.x.z"])
patterns = subjects | st.sampled_from(["*", "a.*", "*.x", "a.>", ">", "*.x.>"])
positions = st.integers(0, 14)
log_steps = st.one_of(
    st.tuples(
        st.just("append"),
        st.fixed_dictionaries(
            {
                "ids": st.lists(st.sampled_from("123456789"), min_size=1, max_size=5),
                "subject": subjects,
                "expected": st.none() | st.none() | positions,
            }
        ),
    ),
    st.tuples(
        st.just("read"),
        st.fixed_dictionaries({"subject": patterns, "start": positions, "limit": st.integers(1, 6)}),
    ),
    st.tuples(st.just("last"), st.fixed_dictionaries({"subject": st.none() | subjects})),
    st.tuples(
        st.just("trim"),
        st.fixed_dictionaries({"before": st.none() | positions, "subject": st.none() | patterns}),
    ),
    st.tuples(st.just("bound"), st.fixed_dictionaries({"max_per_subject": st.none() | st.integers(1, 3)})),
)
keys = st.sampled_from(["a", "b", "a.x", "a.xy", "ab"])
values = st.binary(max_size=4)
table_steps = st.one_of(
    st.tuples(st.just("put"), st.fixed_dictionaries({"key": keys, "value": values})),
    st.tuples(
        st.just("compare_and_set"),
        st.fixed_dictionaries({"key": keys, "value": values, "known": st.integers(-1, 5)}),
    ),
    st.tuples(
        st.just("delete"), st.fixed_dictionaries({"key": keys, "known": st.none() | st.integers(-1, 5)})
    ),
    st.tuples(st.just("get"), st.fixed_dictionaries({"key": keys, "fresh": st.booleans()})),
    st.tuples(
        st.just("keys"),
        st.fixed_dictionaries(
            {"prefix": st.sampled_from(["", "a", "a.", "a.x", "b"]), "fresh": st.booleans()}
        ),
    ),
)


class Pair:
    """Both stores, in an event loop of their own."""

    def __init__(self, runner: asyncio.Runner, servers: LocalServers) -> None:
        self.runner = runner
        self.memory = MemoryStore()
        self.jetstream = runner.run(
            JetStreamStore.connect(
                servers.urls, token=servers.token, replicas=len(servers.plans), deadline_s=30
            )
        )


@pytest.fixture(scope="module")
def pair(servers: LocalServers) -> Iterator[Pair]:
    with asyncio.Runner() as runner:
        both = Pair(runner, servers)
        yield both
        runner.run(both.jetstream.close())


@pytest.fixture(scope="module")
def cluster_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with LocalServers(tmp_path_factory.mktemp("cluster"), servers=3) as servers, asyncio.Runner() as runner:
        both = Pair(runner, servers)
        yield both
        runner.run(both.jetstream.close())


async def outcome(work: Awaitable[Any]) -> object:
    """What came of it, in a form that does not depend on the clock or on words."""
    try:
        result = await work
    except TocsinError as error:
        fields = {k: v for k, v in vars(error).items() if isinstance(v, int)}
        return type(error).__name__, fields
    if isinstance(result, Page):
        entries = [(entry.position, entry.subject, entry.payload, entry.id) for entry in result.entries]
        return entries, result.next, result.last
    return result


async def play_log(store: Store, spec: LogSpec, steps: list[Step]) -> list[object]:
    log: Log = await store.log(spec)
    seen: list[object] = []
    for verb, arguments in steps:
        named = dict(arguments)
        if named.get("subject") is not None:
            named["subject"] = f"{spec.name}.{named['subject']}"
        if verb == "bound":
            log = await store.log(LogSpec(spec.name, spec.subjects, **named))
            continue
        if verb == "append":
            batch = [Record(named["subject"], f"of {each}".encode(), each) for each in named["ids"]]
            seen.append(await outcome(log.append(batch, expected=named["expected"])))
        elif verb == "read":
            seen.append(await outcome(log.read(named["subject"], named["start"], limit=named["limit"])))
        else:
            method: Callable[..., Awaitable[Any]] = getattr(log, verb)
            seen.append(await outcome(method(**named)))
    return seen


async def play_table(store: Store, spec: TableSpec, steps: list[Step]) -> list[object]:
    """The answers to these steps. A revision is told as the number of its write: a fresh read may take revisions."""
    table: Table = await store.table(spec)
    seen: list[object] = []
    revisions = [0]  # of absent keys, and of values; a step names one of the latest, or -1 for "absent"

    def told(answer: object) -> object:
        if isinstance(answer, Cell):
            return answer.key, answer.value, revisions.index(answer.revision)
        if isinstance(answer, tuple) and answer[:1] == ("Conflict",):
            return "Conflict", {field: revisions.index(each) for field, each in answer[1].items()}
        return answer

    for verb, arguments in steps:
        named = dict(arguments)
        if "known" in named:
            known = named.pop("known")
            if known is not None:
                values_known = len(revisions) - 1
                named["revision"] = (
                    0 if known < 0 or not values_known else revisions[-1 - known % values_known]
                )
        method: Callable[..., Awaitable[Any]] = getattr(table, verb)
        result = await outcome(method(**named))
        if isinstance(result, int):
            assert result > revisions[-1], "revisions grow"
            revisions.append(result)
            result = len(revisions) - 1
        seen.append(told(result))
    return seen


def check_log(pair: Pair, steps: list[Step]) -> None:
    spec = LogSpec(name := f"same{next(_numbers)}", (f"{name}.>",))
    expected = pair.runner.run(play_log(pair.memory, spec, steps))
    assert pair.runner.run(play_log(pair.jetstream, spec, steps)) == expected


def check_table(pair: Pair, steps: list[Step]) -> None:
    spec = TableSpec(f"same{next(_numbers)}")
    expected = pair.runner.run(play_table(pair.memory, spec, steps))
    assert pair.runner.run(play_table(pair.jetstream, spec, steps)) == expected


@QUICK
@given(steps=st.lists(log_steps, min_size=1, max_size=25))
def test_a_log_on_jetstream_answers_as_the_twin_does(pair: Pair, steps: list[Step]) -> None:
    check_log(pair, steps)


@QUICK
@given(steps=st.lists(table_steps, min_size=1, max_size=25))
def test_a_table_on_jetstream_answers_as_the_twin_does(pair: Pair, steps: list[Step]) -> None:
    check_table(pair, steps)


def test_a_table_on_a_cluster_answers_as_its_twin_around_fresh_reads(cluster_pair: Pair) -> None:
    absent: Step = (
        "delete",
        {"key": "a", "known": None},
    )  # nothing is written for it, so that it reads freshly
    check_table(
        cluster_pair,
        [
            absent,
            ("put", {"key": "a", "value": b"1"}),
            ("get", {"key": "a", "fresh": True}),
            ("delete", {"key": "b", "known": 0}),
            ("compare_and_set", {"key": "a", "value": b"2", "known": 0}),
            ("compare_and_set", {"key": "a", "value": b"3", "known": 1}),
            absent,
            absent,
            ("compare_and_set", {"key": "a", "value": b"4", "known": -1}),
            ("keys", {"prefix": "", "fresh": True}),
            ("get", {"key": "a", "fresh": False}),
        ],
    )


@pytest.mark.slow
@LONG
@given(steps=st.lists(log_steps, min_size=1, max_size=40))
def test_a_log_on_jetstream_answers_as_the_twin_does_at_length(pair: Pair, steps: list[Step]) -> None:
    check_log(pair, steps)


@pytest.mark.slow
@LONG
@given(steps=st.lists(table_steps, min_size=1, max_size=40))
def test_a_table_on_jetstream_answers_as_the_twin_does_at_length(pair: Pair, steps: list[Step]) -> None:
    check_table(pair, steps)


@pytest.mark.slow
@pytest.mark.timeout(600)
@CLUSTER
@given(steps=st.lists(log_steps, min_size=5, max_size=40))
def test_a_log_on_a_cluster_answers_as_the_twin_does(cluster_pair: Pair, steps: list[Step]) -> None:
    check_log(cluster_pair, steps)


@pytest.mark.slow
@pytest.mark.timeout(600)
@CLUSTER
@given(steps=st.lists(table_steps, min_size=5, max_size=40))
def test_a_table_on_a_cluster_answers_as_the_twin_does(cluster_pair: Pair, steps: list[Step]) -> None:
    check_table(cluster_pair, steps)
