"""Whether a will is settled, as the other brokers know: asked before a will is published that was found in a copy.

A copy may be old. That its client said goodbye since, or that somebody else has published the will, is known to the
client's broker and to its backups of that time (``core.replication``). Or the client is still connected to its broker,
which was taken for lost and sees to the will itself. So all brokers are asked, and one that knows suffices. A lost
broker knows nothing; a silent one may only hang, and is asked again, ASKS_MAX times in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import msgspec
import structlog

from tocsin.errors import DeadlineExceeded, TocsinError
from tocsin.model.versions import UNREADABLE, Packed
from tocsin.ports import Bus, BusMessage

WILLS: Final = Packed("the names of wills", msgspec.msgpack.Decoder(list[str]), spoken=True)
ANSWER_S: Final = 2.0
ASKS_MAX: Final = 5  # together longer than a broker takes that hangs for a moment, or is cut off
GATHER_S: Final = 0.01  # wills of one broker fall due together, and go together
WILLS_MAX: Final = 2_000  # in one request: their names have some hundred bytes


class Witnesses:
    """``sees_to``: whether this broker knows that another need not publish a will, by a name of it."""

    def __init__(
        self,
        bus: Bus,
        sees_to: Callable[[str], bool],
        *,
        network: str,
        broker: str,
        others: Iterable[str],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        answer_s: float = ANSWER_S,
    ) -> None:
        self.subject = self._subject(network, broker)
        self._bus = bus
        self._sees_to = sees_to
        self._subjects = tuple(self._subject(network, each) for each in others if each != broker)
        self._answer_s = answer_s
        self._gathered: dict[str, asyncio.Future[bool]] = {}
        self._spawn = spawn
        self._log = structlog.get_logger()

    @staticmethod
    def _subject(network: str, broker: str) -> str:
        return f"{network}.wills.{broker}"

    async def know_settled(self, *names: str) -> bool:
        """Whether anybody knows that a will is settled or seen to, by any of its names."""
        if any(map(self._sees_to, names)):
            return True
        return any(await asyncio.gather(*map(self._known, names)))

    def _known(self, name: str) -> asyncio.Future[bool]:
        if not self._gathered:
            asyncio.get_running_loop().call_later(GATHER_S, self._ask)
        future = self._gathered.get(name)
        if future is None:
            future = self._gathered[name] = asyncio.get_running_loop().create_future()
        return future

    def _ask(self) -> None:
        gathered, self._gathered = list(self._gathered.items()), {}
        for first in range(0, len(gathered), WILLS_MAX):
            asked = dict(gathered[first : first + WILLS_MAX])
            self._spawn(self._ask_all(asked))

    async def _ask_all(self, asked: dict[str, asyncio.Future[bool]]) -> None:
        payload = WILLS.write(list(asked))
        answers = await asyncio.gather(*(self._ask_one(each, payload) for each in self._subjects))
        known = {will_id for answer in answers for will_id in answer}
        for will_id, future in asked.items():
            if not future.done():
                future.set_result(will_id in known)

    async def _ask_one(self, subject: str, payload: bytes) -> list[str]:
        for _ in range(ASKS_MAX):
            try:
                return WILLS.read(await self._bus.request(subject, payload, deadline_s=self._answer_s))
            except DeadlineExceeded:
                continue  # it may only hang: a will can wait for that
            except TocsinError as error:
                self._log.debug("a broker does not say which wills are settled", problem=str(error))
                break
        return []

    async def answer(self, request: BusMessage) -> bytes:
        """The wills that are settled or seen to, among those that a request names."""
        try:
            asked = WILLS.read(request.payload)
        except UNREADABLE as error:
            self._log.warning("a question about wills is unreadable", problem=str(error))
            asked = []
        return WILLS.write([each for each in asked if self._sees_to(each)])
