"""What is shown of a network."""

from __future__ import annotations

import io
import json

import msgspec
import pytest
from rich.console import Console

from tocsin.cli.verbs.up_board import JsonBoard, LiveBoard, board, table
from tocsin.core.supervision.machine import Row
from tocsin.runtime.network.directory import BrokerAddress, NetworkFile

NETWORK = NetworkFile(
    "tocsin",
    7,
    ("nats://127.0.0.1:4222",),
    (BrokerAddress("north-1", "north", "edge", "127.0.0.1", 1883),),
)
READY = Row("broker/north-1", 2, "ready", "", 12, 1_000_000, 0, 0, {"clients": 1234, "name": "x"})
ROWS = (
    Row("store-1", 0, "ready", "", 10, 0, 0, 0, {}),
    Row("coordinator", 1, "degraded", "no report for 10 s", 11, 0, 2, 0, {}),
    READY,
)


def shown(rows: tuple[Row, ...], now_us: int = 62_000_000) -> list[str]:
    console = Console(file=io.StringIO(), width=160)
    console.print(table(rows, NETWORK, now_us))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def line_of(name: str, rows: tuple[Row, ...] = ROWS) -> str:
    return next(line for line in shown(rows) if name in line)


def test_a_broker_is_shown_with_role_address_health_and_figures() -> None:
    line = line_of("broker/north-1")
    for words in ("edge of north", "127.0.0.1:1883", "ready", "12", "1:01", "1,234 clients"):
        assert words in line
    assert "name" not in line


def test_a_broker_is_shown_with_every_way_in() -> None:
    secured = msgspec.structs.replace(NETWORK.brokers[0], tls_port=8883, ws_port=8080)
    console = Console(file=io.StringIO(), width=160)
    console.print(table(ROWS, msgspec.structs.replace(NETWORK, brokers=(secured,)), 0))
    assert isinstance(console.file, io.StringIO)
    for words in ("127.0.0.1:1883", "mqtts://127.0.0.1:8883", "ws://127.0.0.1:8080/mqtt"):
        assert words in console.file.getvalue()


def test_a_server_is_shown_with_its_address() -> None:
    assert "127.0.0.1:4222" in line_of("store-1")


def test_trouble_is_shown_in_words() -> None:
    line = line_of("coordinator")
    assert "degraded" in line and "no report for 10 s" in line and " 2 " in line


def test_a_restart_is_counted_down() -> None:
    waiting = msgspec.structs.replace(
        READY, health="backing off", problem="ended by signal 9", pid=None, retry_at_us=65_000_000
    )
    line = line_of("broker/north-1", (waiting,))
    assert "backing off" in line and "ended by signal 9; again in 3 s" in line


def test_words_from_outside_are_no_markup() -> None:
    odd = msgspec.structs.replace(READY, problem="[red]x[/red]")
    assert "[red]x[/red]" in line_of("broker/north-1", (odd,))


def test_elsewhere_than_on_a_terminal_one_json_line_says_ready(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = board(NETWORK, "/state")
    assert isinstance(chosen, JsonBoard)
    with chosen as shown:
        shown.show(ROWS, 0)
        shown.ready(ROWS, 1.23456)
    line = json.loads(capsys.readouterr().out)
    assert (line["event"], line["seconds"], line["state"]) == ("ready", 1.235, "/state")
    assert line["brokers"] == [
        {"id": "north-1", "cluster": "north", "role": "edge", "host": "127.0.0.1", "port": 1883}
    ]
    assert line["pids"] == {"store-1": 10, "coordinator": 11, "broker/north-1": 12}


def test_on_a_terminal_the_foot_says_what_to_do_next() -> None:
    console = Console(file=io.StringIO(), width=160, force_terminal=True)
    with LiveBoard(NETWORK, "/state", console) as shown:
        shown.show(ROWS, 0)
        shown.ready(ROWS, 1.0)
        shown.show(ROWS, 0)
    assert isinstance(console.file, io.StringIO)
    assert "ready after 1.0 s" in console.file.getvalue()
    assert "Ctrl-C" in console.file.getvalue()


def test_mere_figures_wait_for_the_next_second() -> None:
    console = Console(file=io.StringIO(), width=160, force_terminal=True)
    assert isinstance(console.file, io.StringIO)
    with LiveBoard(NETWORK, "/state", console) as shown:
        shown.show((READY,), 1_000_000)
        for clients, now_us, drawn in ((777_777, 1_500_000, False), (888_888, 2_000_000, True)):
            shown.show((msgspec.structs.replace(READY, facts={"clients": clients}),), now_us)
            assert (f"{clients:,}" in console.file.getvalue()) == drawn
        shown.show((msgspec.structs.replace(READY, health="degraded"),), 2_000_001)
        assert "degraded" in console.file.getvalue()


def test_a_terminal_that_is_gone_stops_nobody() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("input/output error")

    with LiveBoard(NETWORK, "/state", Console(file=io.StringIO(), force_terminal=True)) as shown:
        shown._live.console.file = Gone()
        shown.show(ROWS, 0)


def test_the_pipeline_is_shown_with_spark_and_the_feeder_with_its_door() -> None:
    facts = {"role": "Spark 4.3.0 on local[*]", "spark": "http://127.0.0.1:4040", "channels": 3, "tick": 41}
    pipeline = Row("pipeline", 3, "ready", "", 13, 0, 0, 0, facts)
    feeder = Row("feeder", 3, "ready", "", 14, 0, 0, 0, {"http": "http://127.0.0.1:8480", "feeds": 2})
    line = line_of("pipeline", (pipeline, feeder))
    for words in ("Spark 4.3.0 on local[*]", "http://127.0.0.1:4040", "3 channels", "41 tick"):
        assert words in line
    assert "http://127.0.0.1:8480" in line_of("feeder", (pipeline, feeder))


def test_a_pipeline_that_has_not_started_has_no_process_id(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting = Row("pipeline", 3, "starting", "", None, 0, 0, 0, {})
    JsonBoard(NETWORK, "/state").ready((*ROWS, waiting), 1.0)
    line = json.loads(capsys.readouterr().out)
    assert "pipeline" not in line["pids"] and line["feeder"] is None


def test_the_foot_says_how_to_get_what_is_missing() -> None:
    console = Console(file=io.StringIO(), width=160, force_terminal=True)
    with LiveBoard(NETWORK, "/state", console, hint="Spark is not installed") as shown:
        shown.ready(ROWS, 1.0)
        shown.show(ROWS, 0)
    assert isinstance(console.file, io.StringIO)
    assert "Spark is not installed" in console.file.getvalue()
