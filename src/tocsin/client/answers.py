"""Waits for the broker's answers. Every wait has the client's deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from tocsin.errors import DeadlineExceeded, TocsinError

Answer = asyncio.Future[None]


class Answers:
    """The answers that are still to come, by request."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._expected: dict[int, Answer] = {}

    def expect(self, request: int) -> Answer:
        """The caller may wait for this."""
        answer = self._expected[request] = asyncio.get_running_loop().create_future()
        return answer

    def resolve(self, request: int, error: TocsinError | None) -> None:
        """The answer has come; no matter if nobody waits for it."""
        answer = self._expected.pop(request, None)
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)

    def fail(self, error: TocsinError) -> None:
        """No answer comes any more."""
        for request in list(self._expected):
            self.resolve(request, error)

    async def wait(self, asked: Mapping[Answer, str]) -> None:
        """Return when all have come; the first error otherwise. ``asked`` names each, for ``DeadlineExceeded``."""
        late = ""
        try:
            async with asyncio.timeout(self._deadline_s):
                for answer, late in asked.items():  # noqa: B007 - the late request is named below
                    await answer
        except TimeoutError:
            raise DeadlineExceeded(late, self._deadline_s) from None
        finally:
            self.let_go(asked)

    def let_go(self, answers: Iterable[Answer]) -> None:
        """Nobody waits for these any more."""
        for answer in answers:
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # seen, so that nobody is told that it was not
