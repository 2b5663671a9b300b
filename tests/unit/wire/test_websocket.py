"""Frames and requests of WebSocket, against a reader that is fed whole frames one by one and does nothing clever."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.web import BINARY, CLOSE, CONTINUATION, HEADERS, PING, PONG, TEXT, frame
from tocsin.wire import websocket
from tocsin.wire.websocket import Broken, Close, Item, Ping, Reader, Refusal, Upgrade, answer, binary_frame

MAX_BYTES = 70_000

sizes = st.one_of(
    st.integers(0, 300), st.sampled_from([125, 126, 127, 65_535, 65_536, MAX_BYTES, MAX_BYTES + 1])
)
frames = st.tuples(
    st.sampled_from([BINARY, BINARY, CONTINUATION, PING, PONG, TEXT, CLOSE, 0x3, 0xB]), sizes, st.booleans()
)


def dumb(story: list[tuple[int, int, bool]]) -> tuple[bytes, list[Item]]:
    """The data, and everything else, that these frames say."""
    data, others, inside = b"", list[Item](), False
    for kind, size, fin in story:
        payload = bytes(index % 251 for index in range(size))
        if kind in (BINARY, CONTINUATION):
            if (kind == CONTINUATION) != inside:
                return data, [*others, Broken(1002, "")]
            if size > MAX_BYTES:
                return data, [*others, Broken(1009, "")]
            data, inside = data + payload, not fin
        elif kind == TEXT:
            return data, [*others, Broken(1003, "")]
        elif kind not in (PING, PONG, CLOSE) or not fin or size > 125:
            return data, [*others, Broken(1002, "")]
        elif kind == PING:
            others.append(Ping(payload))
        elif kind == CLOSE:  # its payload begins with 0, 1: no code that there is
            return data, [*others, Close() if size == 0 else Broken(1002, "")]
    return data, others


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 1 << 18), max_size=8))
def test_however_frames_are_cut_they_say_what_they_say_one_by_one(
    story: list[tuple[int, int, bool]], cuts: list[int]
) -> None:
    stream = b"".join(
        frame(kind, bytes(index % 251 for index in range(size)), fin=fin) for kind, size, fin in story
    )
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    reader = Reader(MAX_BYTES)
    items: list[Item] = []
    for start, end in itertools.pairwise(places):
        items += reader.feed(stream[start:end])
    data, others = dumb(story)
    assert b"".join(item for item in items if isinstance(item, bytes)) == data
    heard = [Broken(item.code, "") if isinstance(item, Broken) else item for item in items]
    assert [item for item in heard if not isinstance(item, bytes)] == others


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    whole, bytewise = Reader(100), Reader(100)
    items = whole.feed(data)
    single = [item for index in range(len(data)) for item in bytewise.feed(data[index : index + 1])]

    def said(all_of_it: list[Item]) -> tuple[bytes, list[Item]]:
        return (
            b"".join(item for item in all_of_it if isinstance(item, bytes)),
            [item for item in all_of_it if not isinstance(item, bytes)],
        )

    assert said(items) == said(single)
    if any(isinstance(item, Close | Broken) for item in items):
        assert isinstance(items[-1], Close | Broken)
        assert whole.feed(frame(BINARY, b"x")) == []


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (b"\x82\x05", 1002),  # not masked
        (b"\x82\xfe\x00\x7d", 1002),  # 125, in two bytes
        (b"\x82\xff" + (65_535).to_bytes(8), 1002),
        (b"\x82\xff\x80" + bytes(7), 1002),
        (b"\x82\xff" + (1 << 40).to_bytes(8), 1009),
    ],
)
def test_a_frame_is_judged_by_its_first_bytes(head: bytes, code: int) -> None:
    (item,) = Reader(1 << 20).feed(head)
    assert isinstance(item, Broken)
    assert item.code == code


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", Close()),
        ((1000).to_bytes(2) + b"gute Nacht", Close()),
        ((4999).to_bytes(2), Close()),
        ((1005).to_bytes(2), 1002),
        ((5000).to_bytes(2), 1002),
        (b"\x03", 1002),
        ((1000).to_bytes(2) + b"\xff", 1007),
    ],
)
def test_a_close_has_a_code_that_there_is_and_a_reason_that_can_be_read(
    payload: bytes, expected: Close | int
) -> None:
    (item,) = Reader(100).feed(frame(CLOSE, payload))
    assert (item.code if isinstance(item, Broken) else item) == expected


@given(st.sampled_from([0, 1, 125, 126, 65_535, 65_536, 100_000]))
def test_a_frame_of_ours_has_the_shortest_header(size: int) -> None:
    framed = binary_frame(b"x" * size)
    assert framed.endswith(b"x" * size)
    assert len(framed) - size == (2 if size < 126 else 4 if size < 65_536 else 10)


@given(st.text(max_size=300))
def test_no_request_makes_it_fail(text: str) -> None:
    lines = [f"{name}: {value}" for name, value in HEADERS.items()]
    good = "\r\n".join(["GET /mqtt HTTP/1.1", *lines])
    assert isinstance(answer(good.encode()), Upgrade)
    for head in (text, f"GET {text} HTTP/1.1", f"{good}\r\n{text}", good.replace("mqtt", text)):
        verdict = answer(head.encode())
        if isinstance(verdict, Refusal):
            assert verdict.response.startswith(b"HTTP/1.1 4")
            assert websocket.SUBPROTOCOL.encode() not in verdict.response.partition(b"\r\n\r\n")[0]
