"""What NATS servers say and what we say to them, in bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.store.nats.protocol import (
    CONTROL_MAX_BYTES,
    Failure,
    Incoming,
    Info,
    Parser,
    Ping,
    Pong,
    ProtocolBroken,
    Said,
    connect,
    frame,
    parse_headers,
    subscribe,
    unsubscribe,
)

MOST = 10_000
words = st.text("abcXYZ019._-", min_size=1, max_size=20)
pairs = st.lists(st.tuples(words, words), max_size=3, unique_by=lambda pair: pair[0])


def lines_of(named: list[tuple[str, str]]) -> bytes:
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in named)


@given(words, st.just("") | words, pairs, st.binary(max_size=200))
def test_a_frame_says_its_own_lengths(
    subject: str, reply: str, named: list[tuple[str, str]], payload: bytes
) -> None:
    headers = lines_of(named)
    written = frame(subject, reply, headers, payload)
    control, _, rest = written.partition(b"\r\n")
    verb, *arguments = control.decode().split(" ")
    assert arguments[: 2 if reply else 1] == ([subject, reply] if reply else [subject])
    assert rest.endswith(b"\r\n")
    body = rest[:-2]
    if headers:
        assert verb == "HPUB"
        size, total = int(arguments[-2]), int(arguments[-1])
        assert body[:size] == b"NATS/1.0\r\n" + headers + b"\r\n"
        assert body[size:] == payload
        assert len(body) == total
    else:
        assert verb == "PUB"
        assert body == payload
        assert int(arguments[-1]) == len(payload)


messages = st.builds(
    lambda subject, reply, payload, named, sid: Incoming(subject, reply, payload, dict(named), sid),
    words,
    st.just("") | words,
    st.binary(max_size=300),
    pairs,
    st.integers(1, 10**6),
)
others = st.sampled_from((Ping(), Pong(), Failure("no room"), Info(max_payload=7, nonce="n")))


def written_by_a_server(said: Said) -> bytes:
    match said:
        case Ping():
            return b"PING\r\n"
        case Pong():
            return b"PONG\r\n"
        case Failure(problem=problem):
            return f"-ERR '{problem}'\r\n".encode()
        case Info():
            return b"INFO " + msgspec.json.encode(said) + b" \r\n"
        case Incoming():
            names = f"{said.subject} {said.sid} " + (f"{said.reply} " if said.reply else "")
            if not said.headers:
                return f"MSG {names}{len(said.payload)}\r\n".encode() + said.payload + b"\r\n"
            block = b"NATS/1.0\r\n" + lines_of(list(said.headers.items())) + b"\r\n"
            sizes = f"{len(block)} {len(block) + len(said.payload)}"
            return f"HMSG {names}{sizes}\r\n".encode() + block + said.payload + b"\r\n"


@given(st.lists(messages | others, max_size=6), st.integers(1, 500))
def test_however_it_is_cut_what_the_server_says_is_read(story: list[Said], size: int) -> None:
    stream = b"".join(map(written_by_a_server, story)) + b"+OK\r\n"
    parser = Parser(MOST)
    heard = [said for at in range(0, len(stream), size) for said in parser.feed(stream[at : at + size])]
    assert heard == story


@pytest.mark.parametrize(
    "broken",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"MSG a 1\r\n",
        b"MSG a x 1\r\n",
        b"MSG a 1 b c 1\r\n",
        b"MSG a 1 %d\r\n" % (MOST + 1),
        b"MSG a 1 -1\r\n",
        b"HMSG a 1 9 3\r\n",
        b"HMSG a 1 4 4\r\nHTTP\r\n",
        b"INFO {\r\n",
        b"x" * (CONTROL_MAX_BYTES + 1),
    ],
)
def test_what_is_no_nats_is_refused(broken: bytes) -> None:
    with pytest.raises(ProtocolBroken):
        Parser(MOST).feed(broken)


@given(st.binary(max_size=300))
def test_no_bytes_make_it_fail_otherwise(data: bytes) -> None:
    parser = Parser(MOST)
    try:
        parser.feed(data)
        parser.feed(b"PING\r\n")
    except ProtocolBroken:
        pass


def test_a_status_is_a_header() -> None:
    assert parse_headers(b"NATS/1.0 503\r\n\r\n") == {"Status": "503"}
    words = b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 3\r\n\r\n"
    assert parse_headers(words) == {
        "Status": "409",
        "Description": "Message Size Exceeds MaxBytes",
        "Nats-Pending-Messages": "3",
    }


def test_commands_are_as_the_protocol_has_them() -> None:
    assert subscribe("a.*", "", 3) == b"SUB a.* 3\r\n"
    assert subscribe("a", "workers", 4) == b"SUB a workers 4\r\n"
    assert unsubscribe(4) == b"UNSUB 4\r\n"
    assert connect({"name": "x"}) == b'CONNECT {"name":"x"}\r\n'
