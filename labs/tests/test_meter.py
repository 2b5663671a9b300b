"""Who said how much to whom, from what sockets have carried."""

from __future__ import annotations

import os
import socket

from hypothesis import given
from hypothesis import strategies as st

from tocsin_labs.meter import OTHERS, Account, Amount, Meter, among, between, of, outside, without
from tocsin_labs.sockets import SEGMENT_BYTES, Address, Socket

OWNERS = {1: "store-1", 2: "broker/a", 3: "broker/b"}


def address(port: int) -> Address:
    return b"\x7f\0\0\1", port.to_bytes(2, "big")


def end(cookie: int, inode: int, local: int, remote: int, sent: int, received: int) -> Socket:
    return Socket(cookie, inode, address(local), address(remote), sent, received, 1, 1)


def test_each_byte_between_two_processes_counts_once() -> None:
    account = Account()
    account.note([end(10, 1, 80, 99, 500, 70), end(11, 2, 99, 80, 70, 500)], OWNERS)
    found = account.totals()
    assert found == {("store-1", "broker/a"): Amount(500, 1), ("broker/a", "store-1"): Amount(70, 1)}
    assert among(found) == Amount(570, 2)
    assert among(found).wire_bytes == 570 + 2 * SEGMENT_BYTES
    assert of(found, "broker/b") == Amount()


def test_client_traffic_is_attributed_to_its_reader_and_not_to_processes() -> None:
    account = Account()
    account.note([end(10, 2, 80, 99, 500, 70), end(11, 1, 82, 98, 5, 7)], OWNERS)
    found = account.totals()
    assert among(found) == Amount()
    assert of(found, "broker/a") == Amount()
    assert outside(found, "broker/") == Amount(570, 2)
    assert outside(found, "store-") == Amount(12, 2)


def test_a_connection_that_has_ended_still_counts_and_keeps_who_was_there() -> None:
    account = Account()
    account.note([end(10, 1, 80, 99, 500, 70), end(11, 2, 99, 80, 70, 500)], OWNERS)
    before = account.totals()
    account.note([end(10, 1, 80, 99, 600, 70)], OWNERS)  # the broker's end is gone
    account.note([], OWNERS)
    after = account.totals()
    assert between(before, after) == {
        ("store-1", "broker/a"): Amount(100, 0),
        ("broker/a", "store-1"): Amount(0, 0),
    }
    assert without(after, "broker/a") == {}


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 9), st.integers(0, 9)), max_size=12
    )
)
def test_the_account_is_the_plain_sum_over_connections(rows: list[tuple[int, int, int, int]]) -> None:
    """``rows``: two ends, 4 being a client's, and what went each way."""
    found: list[Socket] = []
    model: dict[tuple[str, str], int] = {}
    names = {**OWNERS, 4: OTHERS}
    for number, (first, second, there, back) in enumerate(rows):
        ports = 1_000 + 2 * number, 1_001 + 2 * number
        found += [
            end(2 * number, first, *ports, there, back),
            end(2 * number + 1, second, *ports[::-1], back, there),
        ]
        for ends, sent in (((first, second), there), ((second, first), back)):
            key = names[ends[0]], names[ends[1]]
            model[key] = model.get(key, 0) + sent
    account = Account()
    account.note(found, OWNERS)
    totals = account.totals()
    assert {ends: amount.bytes for ends, amount in totals.items()} == model
    assert among(totals).bytes == sum(sent for ends, sent in model.items() if OTHERS not in ends)


def test_a_meter_reads_only_the_sockets_of_its_processes() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as caller,
    ):
        answerer, _ = server.accept()
        with answerer:
            meter = Meter(lambda: {"both": os.getpid()})
            before = meter.look()
            caller.sendall(b"x" * 100)
            assert len(answerer.recv(200)) == 100
            carried = between(before, meter.look())
    assert carried["both", "both"].bytes == 100
