"""Control messages survive the wire, and nothing else is taken for one."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Malformed
from tocsin.model.network import BrokerInfo, Message, Role
from tocsin.model.versions import UNREADABLE
from tocsin.wire.internal.commands import ClientGone, Interests, Joined, Queries, Streams
from tocsin.wire.internal.control import (
    HOMES_MAX,
    NAME_MAX,
    REFUGES_MAX,
    Beat,
    Expected,
    KnownUpTo,
    Links,
    Measure,
    Moves,
    Pulse,
    Refresh,
    Seen,
    Submit,
    Unknown,
    decode_envelope,
    encode_envelope,
)

INFO = BrokerInfo("north-1", "north", Role.EDGE, "127.0.0.1", 1883)
SAID = (
    Joined(INFO),
    Interests(("a/#", "b/+"), ("c",)),
    Queries((("id", "temp > 20"),), ("other",)),
    Streams(
        "anna", 60, (("a", {"temp": 1.5, "on": True, "room": 4, "kind": "x", "old": None}), ("b", None)), 7, 9
    ),
    ClientGone("anna", 8, 9),
)
MESSAGES = [
    Beat("north-1", 7, 3, 500, ("south-1", "10.0.0.1:1883"), 9, 500, 77),
    Submit("north-1", 7, 1, SAID),
    Seen("north-1", 7, 3),
    Refresh("north-1", 7),
    Links("north-1", 7, ("south-1",), (("south-2", 40_000),)),
    Measure(2, 7),
    Pulse(2, 7, 3, (INFO,), (("south-1", INFO),), 9),
    Unknown(2, 7),
    Expected(2, 7, 4),
    KnownUpTo(2, 7, 4),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was_sent(message: Message) -> None:
    envelope = decode_envelope(encode_envelope("broker/north-1", "cause-1", message))
    story = ("", "") if isinstance(message, Beat | Pulse) else ("broker/north-1", "cause-1")
    assert (envelope.message, envelope.sender, envelope.cause) == (message, *story)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_decoded_but_never_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(*UNREADABLE):
        decode_envelope(data)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        ["a"],
        [["Nothing", 1]],
        [["B"]],
        [["B", "north-1", 7]],
        [["B", "north-1", 7, 3, 0, [], -1]],
        [["B", "north-1", 7, 3, 0, ["x"] * (HOMES_MAX + 1)]],
        [["B", "north-1", 7, 3, 0, ["x" * (NAME_MAX + 1)]]],
        [["B", "north-1", 7, 3, 0, [], 1, 500, 0, "more"]],
        [["P", 1, 7, 3, [0] * (REFUGES_MAX + 1)]],
        [["Seen", "north-1", 7, 3], "cause", "sender", "more"],
        [1, 2, 3],
        "x" * 10,
    ],
)
def test_other_values_are_refused_in_words(value: object) -> None:
    with pytest.raises(Malformed, match="not a control message"):
        decode_envelope(msgspec.msgpack.encode(value))


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(Malformed):
        decode_envelope(b"\xdc\x00\x03\xa1\x80")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(Malformed):
        decode_envelope(b"\x91" * 100_000)


def test_beats_and_pulses_are_a_few_dozen_bytes() -> None:
    incarnation = (1 << 62) - 1
    beat = Beat("north-1", incarnation, 1_000_000, 1_000, (), 10_000_000, 500, (1 << 32) - 1)
    pulse = Pulse(1_000, incarnation, 1_000_000, None, None, 10_000_000)
    assert len(encode_envelope("broker/north-1", "broker/north-1:start", beat)) <= 48
    assert len(encode_envelope("coordinator/1", "broker/north-1:start", pulse)) <= 32


class OldInfo(msgspec.Struct, frozen=True):
    """A broker as the previous release knows it."""

    id: str
    cluster: str
    role: Role
    host: str
    port: int
    certified: str = ""


class OldBeat(Message, frozen=True, array_like=True, tag="B"):
    broker: str
    incarnation: int
    seen: int


class OldMoves(msgspec.Struct, frozen=True, array_like=True):
    drain: bool
    count: int
    to: tuple[OldInfo, ...] = ()
    others: bool = False


class OldPulse(Message, frozen=True, array_like=True, tag="P"):
    epoch: int
    incarnation: int
    noticed: int
    refuges: tuple[OldInfo, ...] | None = None
    homes: tuple[tuple[str, OldInfo], ...] | None = None
    heard: int = 0
    level: int = 0
    moves: OldMoves | None = None


def test_the_previous_release_passes_over_what_is_said_of_recruits() -> None:
    info = BrokerInfo("a", "n", Role.STANDBY, "h", 1, lent_by="s", may_stand_by=True)
    pulse = Pulse(1, 2, 3, (info,), moves=Moves(True, 1, (info,), recruits=True), role=Role.STANDBY)
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(pulse), type=OldPulse)
    assert old.moves == OldMoves(True, 1, (OldInfo("a", "n", Role.STANDBY, "h", 1),))
    beat = msgspec.msgpack.encode(Beat("a", 1, 2, recruited=True))
    assert msgspec.msgpack.decode(beat, type=OldBeat) == OldBeat("a", 1, 2)


def test_what_the_previous_release_says_recruits_nobody() -> None:
    info = OldInfo("a", "n", Role.EDGE, "h", 1)
    pulse = OldPulse(1, 2, 3, (info,), moves=OldMoves(True, 1))
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(pulse), type=Pulse)
    assert read.role is None and read.moves == Moves(True, 1) and not read.moves.recruits
    assert read.refuges is not None and not read.refuges[0].may_stand_by
    assert not msgspec.msgpack.decode(msgspec.msgpack.encode(OldBeat("a", 1, 2)), type=Beat).recruited
