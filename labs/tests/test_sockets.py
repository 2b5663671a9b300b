"""What sockets have carried: the kernel's own count, and answers that are none."""

from __future__ import annotations

import os
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin_labs import sockets
from tocsin_labs.sockets import DONE, ERROR, HEADER, Socket, parse


def test_the_kernel_counts_what_a_connection_carried_both_ways() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as caller,
    ):
        answerer, _ = server.accept()
        with answerer:
            caller.sendall(b"x" * 1_234)
            received = 0
            while received < 1_234:
                received += len(answerer.recv(4_096))
            answerer.sendall(b"y" * 77)
            assert len(caller.recv(100)) == 77
            inodes = {caller.fileno(): os.fstat(caller.fileno()).st_ino}
            own = [each for each in sockets.read() if each.inode in inodes.values()]
            assert len(own) == 1
            assert (own[0].sent_bytes, own[0].received_bytes) == (1_234, 77)
            assert own[0].sent_segments >= 1
            assert own[0].received_segments >= 1
            assert {own[0].inode} <= {*sockets.inodes_of(os.getpid())}


def test_a_process_that_is_gone_has_no_sockets() -> None:
    assert sockets.inodes_of(2**22 + 1) == []


def message(kind: int, body: bytes) -> bytes:
    framed = HEADER.pack(HEADER.size + len(body), kind, 0, 1, 0) + body
    return framed + b"\0" * (-len(framed) % 4)


def one(cookie: int, inode: int, sent: int, received: int, extra: bytes = b"") -> bytes:
    """A socket as the kernel tells it."""
    body = (
        struct.pack(
            "=4x",
        )
        + b"\x04\xd2\x16\x2e"
    )
    body += b"\x7f\0\0\1" + bytes(12) + b"\x7f\0\0\2" + bytes(12) + bytes(4)
    body += struct.pack("=Q16xI", cookie, inode)
    info = struct.pack("=128xQII56xQ", received, 3, 4, sent) + extra
    attribute = struct.pack("=HH", 4 + len(info), sockets.INFO) + info
    return message(sockets.BY_FAMILY, body + attribute)


@given(
    st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 4), max_size=5),
    st.binary(max_size=40).map(lambda extra: extra[: len(extra) // 4 * 4]),
)
def test_every_socket_of_an_answer_is_read(rows: list[tuple[int, int, int, int]], extra: bytes) -> None:
    answer = b"".join(one(*row, extra) for row in rows)
    found, done = parse(answer)
    assert not done
    assert [(each.cookie, each.inode, each.sent_bytes, each.received_bytes) for each in found] == rows
    for each in found:
        assert each.local == (b"\x7f\0\0\1", b"\x04\xd2")
        assert each.remote == (b"\x7f\0\0\2", b"\x16\x2e")
    assert parse(answer + message(DONE, b"")) == (found, True)


@given(st.binary(max_size=300))
def test_what_is_no_answer_is_refused_in_words_or_holds_nothing(data: bytes) -> None:
    try:
        found, _ = parse(data)
    except ValueError as error:
        assert str(error)
    else:
        assert all(isinstance(each, Socket) for each in found)


@pytest.mark.parametrize(
    "data",
    [b"\1", HEADER.pack(10_000, 20, 0, 1, 0), HEADER.pack(4, 20, 0, 1, 0), message(ERROR, bytes(4))],
)
def test_an_answer_that_is_cut_short_or_refuses_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse(data)
