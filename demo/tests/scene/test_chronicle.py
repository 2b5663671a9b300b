"""What the coordinator's log, and brokers' own logs, say of a failure."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import tocsin
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.internal.commands import Command, Joined, Lost, Planned, Said, encode_batch, encode_command
from tocsin.wire.internal.notices import Moved, encode_item, encode_items, encode_notice
from tocsin_demo.scene.chronicle import STANDS_IN, Chronicle, Mark, took_over

NORTH = BrokerInfo("north-2", "north", Role.EDGE, "h", 1)
SOUTH = BrokerInfo("south-1", "south", Role.EDGE, "h", 2)
AT = datetime.datetime(2026, 5, 1, 12, 0, 0, tzinfo=datetime.UTC)


def batch(*commands: Command) -> bytes:
    raw = tuple(map(encode_command, commands))
    return encode_batch(epoch=1, at_us=0, previous=0, commands=raw, notices=())


def notice(*moved: Moved) -> bytes:
    items = encode_items([*map(encode_item, moved)])
    return encode_notice(
        incarnation=1, number=1, epoch=1, applied=0, clear=0, fresh=False, more=False, ask=False, items=items
    )


def test_losses_returns_and_plans_are_read_from_the_log() -> None:
    chronicle = Chronicle("net")
    assert not chronicle.planned(["north-1"])
    chronicle.take("net.c", batch(Planned((("north-1", None, None),))), 1.0)
    assert not chronicle.planned(["north-1"])
    chronicle.take("net.c", batch(Planned((("north-1", "north-2", None),))), 1.5)
    assert chronicle.planned(["north-1"])
    chronicle.take("net.c", batch(Lost("north-1", 7)), 2.0)
    chronicle.take("net.c", batch(Said("north-1", 9, 1, (Joined(NORTH),))), 4.0)
    chronicle.take("net.c", batch(Lost("north-1", 9)), 6.0)
    assert chronicle.first("lost", "north-1", 0.0) == Mark(2.0, "lost", "north-1")
    assert chronicle.first("lost", "north-1", 3.0) == Mark(6.0, "lost", "north-1")
    assert chronicle.first("lost", "north-1", 7.0) is None
    assert chronicle.first("joined", "north-1", 0.0) == Mark(4.0, "joined", "north-1")


def test_a_move_that_all_brokers_are_told_of_counts_once() -> None:
    chronicle = Chronicle("net")
    told = notice(Moved("north-1", NORTH, 3, gone=True))
    for broker in ("south-1", "south-2"):
        chronicle.take(f"net.n.{broker}", told, 2.0)
    chronicle.take("net.n.south-1", notice(Moved("north-1", None, 4)), 3.0)  # it is back
    assert chronicle.marks == [Mark(2.0, "moved", "north-1", "north-2")]


def test_the_last_stand_in_before_the_return_is_the_one_that_counts() -> None:
    chronicle = Chronicle("net")
    chronicle.take("net.n.x", notice(Moved("north-1", NORTH, 3, gone=True)), 2.0)
    chronicle.take("net.n.x", notice(Moved("north-1", SOUTH, 4, gone=True)), 2.5)
    stand_in = chronicle.stand_in("north-1", 1.0)
    assert stand_in is not None and stand_in.to == "south-1"
    chronicle.take("net.c", batch(Said("north-1", 9, 1, (Joined(NORTH),))), 4.0)
    chronicle.take("net.n.x", notice(Moved("north-1", NORTH, 9, gone=True)), 9.0)
    assert chronicle.stand_in("north-1", 1.0) == stand_in
    later = chronicle.stand_in("north-1", 8.0)
    assert later is not None and later.to == "north-2"
    assert chronicle.stand_in("north-2", 0.0) is None


def test_what_cannot_be_read_is_passed_over() -> None:
    chronicle = Chronicle("net")
    chronicle.take("net.c", b"\xff", 1.0)
    chronicle.take("net.n.x", b"\xff", 1.0)
    assert chronicle.marks == []


def test_brokers_still_say_it_in_these_words() -> None:
    source = Path(tocsin.__file__).parent
    spoken = [path for part in ("broker", "core") for path in (source / part).rglob("*.py")]
    assert any(f'"{STANDS_IN}"' in path.read_text() for path in spoken)


def test_a_stand_in_says_in_its_log_when_it_became_one(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"

    def line(event: str, second: int, broker: str) -> str:
        at = AT + datetime.timedelta(seconds=second)
        return (
            json.dumps({"timestamp": at.isoformat(), "event": event, "broker": broker, "clients": 4}) + "\n"
        )

    assert took_over(log, "north-1", AT) is None
    log.write_text(
        line(STANDS_IN, 1, "north-1")
        + "not json, but it "
        + STANDS_IN
        + "\n"
        + line(STANDS_IN, 5, "south-1")
        + line("stands in no longer", 6, "north-1")
        + line(STANDS_IN, 9, "north-1")
    )
    second = datetime.timedelta(seconds=1)
    assert took_over(log, "north-1", AT) == AT + second
    assert took_over(log, "north-1", AT + 2 * second) == AT + 9 * second
    assert took_over(log, "south-1", AT + 6 * second) is None
