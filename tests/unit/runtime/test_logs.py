"""Log lines: who, why, what, and nothing that could harm the reader."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tocsin.config import Log
from tocsin.runtime import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level
    logging.captureWarnings(False)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def configured(stream: io.StringIO, **settings: Any) -> Any:
    logs.configure("broker/north-1", Log(**settings), stream=lambda: stream)
    return structlog.get_logger()


def test_elsewhere_than_on_a_terminal_a_line_is_json() -> None:
    stream = io.StringIO()
    configured(stream).info("client joined", cause="c1", subscriber="s", epoch=3)
    (line,) = lines(stream)
    assert list(line)[:5] == ["timestamp", "level", "event", "process", "cause"]
    assert line["event"] == "client joined"
    assert (line["process"], line["cause"], line["subscriber"], line["epoch"]) == (
        "broker/north-1",
        "c1",
        "s",
        3,
    )


@pytest.mark.parametrize("facts", [{}, {"cause": ""}])
def test_a_line_without_a_cause_gets_the_one_of_its_process(facts: dict[str, str]) -> None:
    stream = io.StringIO()
    logger = configured(stream)
    logger.info("one", **facts)
    logger.info("two", **facts)
    first, second = lines(stream)
    assert re.fullmatch(r"broker/north-1:[0-9a-f]{8}", first["cause"])
    assert first["cause"] == second["cause"]


def test_on_a_terminal_a_line_is_for_people() -> None:
    stream = Terminal()
    configured(stream).warning("link lost", peer="south-1")
    assert "link lost" in stream.getvalue() and not stream.getvalue().startswith("{")


def test_the_format_can_be_set_whatever_the_stream() -> None:
    stream = Terminal()
    configured(stream, format="json").info("x")
    assert lines(stream)[0]["event"] == "x"
    plain = io.StringIO()
    configured(plain, format="human").info("x")
    assert "\x1b" not in plain.getvalue() and " x " in plain.getvalue()


def test_lines_below_the_level_are_not_kept() -> None:
    stream = io.StringIO()
    logger = configured(stream, level="warning")
    logger.info("quiet")
    logger.warning("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_long_texts_are_cut_and_keep_both_ends() -> None:
    stream = io.StringIO()
    configured(stream).info("x", topic="a" * 10_000 + "end")
    topic = lines(stream)[0]["topic"]
    assert len(topic) < logs.TEXT_MAX + 50
    assert topic.startswith("aaa") and topic.endswith("end")


def test_control_characters_do_not_reach_a_terminal() -> None:
    stream = io.StringIO()
    configured(stream, format="human").info("x", topic="a\x1b[2Jb\nc")
    assert "\x1b[2J" not in stream.getvalue()
    assert r"a\x1b[2Jb\nc" in stream.getvalue()


def test_values_that_json_does_not_know_are_written_as_text() -> None:
    stream = io.StringIO()
    configured(stream).info("x", what=logging.INFO.__class__, error=ValueError("bad"))
    assert lines(stream)[0]["error"] == "bad"


def test_an_exception_is_kept_with_its_trace() -> None:
    stream = io.StringIO()
    logger = configured(stream)
    try:
        raise ValueError("broken")
    except ValueError:
        logger.error("failed", exc_info=True)
    exception = lines(stream)[0]["exception"]
    assert exception.startswith("Traceback") and exception.endswith("ValueError: broken")


def test_lines_of_libraries_come_the_same_way() -> None:
    stream = io.StringIO()
    configured(stream)
    logging.getLogger("nats").warning("lost %s", "it")
    logging.getLogger("nats").info("chatter")
    (line,) = lines(stream)
    assert (line["event"], line["library"], line["level"]) == ("lost it", "nats", "warning")
    assert line["process"] == "broker/north-1"


def test_a_stream_that_cannot_be_written_stops_nobody() -> None:
    stream = io.StringIO()
    logger = configured(stream)
    stream.close()
    logger.info("into the void")
