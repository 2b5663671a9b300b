"""The backend's notices, heard as brokers hear them: to do something in the very moment in which results are there."""

from __future__ import annotations

import asyncio

from tocsin.errors import Malformed
from tocsin.model.results import decode_notice
from tocsin_demo.scene.application import CHANNEL


class Notices:
    """Reads no clock."""

    def __init__(self) -> None:
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []  # the number of results, and their waiters

    def expect(self, results: int) -> asyncio.Future[None]:
        """Done with the next notice of so many results of the channel, or more."""
        future = asyncio.get_running_loop().create_future()
        self._awaited.append((results, future))
        return future

    def take(self, payload: bytes) -> None:
        """An entry of the log."""
        try:
            notice = decode_notice(payload)
        except Malformed:
            return  # of another version: the process that needs it has reported that
        found = sum(each.results for each in notice.executions if each.channel.lower() == CHANNEL.lower())
        awaited, self._awaited = self._awaited, []
        for results, future in awaited:
            if future.done():
                continue
            if results <= found:
                future.set_result(None)
            else:
                self._awaited.append((results, future))
