"""Words between brokers of a cluster: what is encoded is read, and whatever is none is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Malformed
from tocsin.model.versions import UNREADABLE
from tocsin.wire.internal.cluster_messages import (
    BROKERS_MAX,
    SLICE,
    ClusterMessage,
    decode_cluster_message,
    encode_cluster_message,
)

WORD = ClusterMessage(
    "north-1", 7, 1, True, ("north-2",), ("north-3",), (("north-4", ""),), (3, 4), 5, 6, ((6, "a/#", True),)
)


def test_a_word_is_read_as_it_was_said() -> None:
    assert decode_cluster_message(encode_cluster_message(WORD)) == WORD


@given(st.binary(max_size=64))
def test_whatever_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        decode_cluster_message(data)


@given(st.integers(0, len(encode_cluster_message(WORD)) - 1))
def test_one_that_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises(Malformed):
        decode_cluster_message(encode_cluster_message(WORD)[:length])


@pytest.mark.parametrize(
    "large",
    [
        msgspec.structs.replace(WORD, hears=("x",) * (BROKERS_MAX + 1)),
        msgspec.structs.replace(WORD, wants=((1, "x", True),) * (SLICE + 1)),
        msgspec.structs.replace(WORD, sender="x" * 301),
        msgspec.structs.replace(WORD, number=-1),
    ],
)
def test_one_beyond_its_bounds_is_refused(large: ClusterMessage) -> None:
    with pytest.raises(Malformed):
        decode_cluster_message(encode_cluster_message(large))
