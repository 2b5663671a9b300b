"""Batches and notices survive the log, and nothing else is taken for one."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.coordination.histories import NORTH, commands
from tocsin.errors import Malformed
from tocsin.model.network import Route, Scope
from tocsin.model.versions import UNREADABLE
from tocsin.wire.internal import notices
from tocsin.wire.internal.commands import (
    PART_MAX_BYTES,
    BrokerCommand,
    Elected,
    Joined,
    Limits,
    Lost,
    Refreshed,
    Rerouted,
    Said,
    Shunned,
    decode_batch,
    encode_batch,
    encode_command,
    split,
)

ITEMS: tuple[notices.AnyItem, ...] = (
    notices.Routes((Route(Scope.ORIGIN, "a", "b/#"),), (Route(Scope.TRANSIT, "c", "d"),), (NORTH,)),
    notices.QuerySet("q", (("a", {"n": 1, "x": 1.5, "on": True, "kind": "lamp"}),), True),
    notices.Joined("q", "a", {"n": 1}),
    notices.Changed("q", "a", {}),
    notices.Left("q", "a", {"on": False}, 7),
    notices.Refused("a", "too many"),
    notices.Bypass((("south", ("west",)),), ("east",), (NORTH,)),
)


@given(st.lists(commands, max_size=5))
def test_a_batch_comes_back_as_it_was(said: list[BrokerCommand]) -> None:
    logged = (
        Elected("c", Limits(1, 2, 3)),
        Said("north", 1 << 60, 1, (Joined(NORTH), *said)),
        Lost("north", 5),
        Refreshed("north", 5),
        Rerouted("north", (("south", ("west", "east")), ("west", ()))),
        Shunned(("hub",)),
    )
    data = encode_batch(
        epoch=2,
        at_us=3,
        previous=4,
        commands=tuple(map(encode_command, logged)),
        notices=(("north", 6),),
    )
    batch = decode_batch(data)
    assert (batch.epoch, batch.at_us, batch.previous, batch.commands) == (2, 3, 4, logged)
    assert batch.notices == (("north", 6),)


def test_a_notice_comes_back_as_it_was() -> None:
    data = notices.encode_notice(
        incarnation=1,
        number=2,
        epoch=3,
        applied=4,
        clear=5,
        fresh=True,
        more=False,
        ask=True,
        items=notices.encode_items([*map(notices.encode_item, ITEMS)]),
    )
    assert notices.decode_notice(data) == notices.Notice(1, 2, 3, 4, 5, True, False, True, ITEMS)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_decoded_but_never_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(*UNREADABLE):
        decode_batch(data)
    with contextlib.suppress(*UNREADABLE):
        notices.decode_notice(data)


def test_other_values_are_refused_in_words() -> None:
    with pytest.raises(Malformed, match="not a batch of commands"):
        decode_batch(b"\x90")
    with pytest.raises(Malformed, match="not a notice"):
        notices.decode_notice(b"\x90")


@given(st.lists(st.integers(1, PART_MAX_BYTES * 2), max_size=40))
def test_runs_keep_every_item_in_order_and_stay_within_the_bound(sizes: list[int]) -> None:
    runs = split(sizes, lambda size: size)
    assert [size for run in runs for size in run] == sizes
    for run in runs:
        assert sum(run) <= PART_MAX_BYTES or len(run) == 1


def test_nothing_is_still_one_run() -> None:
    assert split([], len) == [()]
