"""Figures over HTTP: one request a connection, and whatever else comes is refused."""

from __future__ import annotations

import contextlib
from contextlib import AbstractAsyncContextManager

import pytest

from tests.unit.runtime.collector import said
from tocsin.runtime.metrics import HEAD_MAX_BYTES, Tell, served


async def tell() -> str:
    return "some_figure 1\n"


def serving(tell: Tell) -> AbstractAsyncContextManager[str]:
    return served("127.0.0.1", 0, tell, whose="it", setting="a.b")


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"405"),
    ],
)
async def test_other_requests_are_refused(request_bytes: bytes, code: bytes) -> None:
    async with serving(tell) as address:
        assert (await said(address, request_bytes)).startswith(b"HTTP/1.1 " + code)


@pytest.mark.parametrize("rubbish", [b"\x16\x03\x01\r\n\r\n", b"GET /" + b"x" * 4 * HEAD_MAX_BYTES])
async def test_rubbish_costs_its_connection_and_nothing_else(rubbish: bytes) -> None:
    async with serving(tell) as address:
        with contextlib.suppress(ConnectionError):  # it may be cut off while it still sends
            assert not (await said(address, rubbish)).startswith(b"HTTP/1.1 200")
        assert b" 200 " in await said(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")


async def test_figures_that_cannot_be_had_are_for_later() -> None:
    async def broken() -> str:
        raise RuntimeError("no figures")

    async with serving(broken) as address:
        assert (await said(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 503")
