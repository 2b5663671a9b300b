"""What a trace of the store's server says of control traffic."""

from __future__ import annotations

import pytest

from tocsin_labs.landmark.kinds import LINKS, REST, Kind, broken_down, read

WHO = '[7] 2026/11/18 20:34:33.8 [TRC] 127.0.0.1:4 - cid:5 - "v0.1.0:tocsin:broker b" - "streams/nkey:U" -'
TRACE = (
    f"{WHO} <<- [PUB lab.to.coordinator 33]",
    f'{WHO} <<- MSG_PAYLOAD: ["[PUB lab.to.coordinator 33]"]',
    f"{WHO} ->> [MSG lab.to.coordinator 5 33]",
    f"{WHO} ->> [HMSG _INBOX.broker.5ac9 8 76 76]",
    f"{WHO} ->> [MSG _INBOX.broker.5ac9.3f 1 900]",
    f"{WHO} <<- [PING]",
    f"{WHO} ->> [PONG]",
    "[7] 2026/11/18 20:34:33.8 [INF] Reloaded: tls = enabled",
)


def test_messages_of_a_trace_are_counted_by_their_subjects() -> None:
    found = {each.name: each for each in read(TRACE, "lab", 2.0)}
    assert {name: each.messages for name, each in found.items()} == {
        "heartbeats and reports": 1.0,
        "followed logs and tables": 0.5,
        "answers of the store": 0.5,
        "pings of the store's connections": 1.0,
    }
    command = len("PUB lab.to.coordinator 33\r\n") + len("MSG lab.to.coordinator 5 33\r\n")
    assert found["heartbeats and reports"].kb == (command + 2 * (33 + 2 + 66)) / 2_000


def test_a_break_down_adds_up_to_the_total() -> None:
    kinds = broken_down(read(TRACE, "lab", 1.0), Kind(LINKS, 1.0, 0.5), 4.0)
    assert sum(each.kb for each in kinds) == pytest.approx(4.0)
    assert [each.name for each in kinds[-2:]] == [LINKS, REST]
