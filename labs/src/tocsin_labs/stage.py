"""An experiment's environment: where results go, where to report progress, and when to cut it short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tocsin.errors import OperatorError
from tocsin_demo.worker import Worker


def make_directory(out: Path) -> None:
    """Have a place for the results. Raises ``OperatorError``."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").touch()
    except OSError as error:
        problem = f"results cannot be written to {out}: {error.strerror or error}"
        raise OperatorError(problem, "Give another place with --out DIR") from None


class Stage:
    """One run's. ``tell`` is given what is done now, and how much of it is done (0 to 1)."""

    def __init__(self, out: Path, tell: Callable[[str, float], None]) -> None:
        self.out = out
        self.tell = tell
        self._cut = asyncio.Event()

    @property
    def is_cut(self) -> bool:
        return self._cut.is_set()

    def cut(self) -> None:
        """Let the experiment end now, with what it has; no other begins."""
        self._cut.set()

    @asynccontextmanager
    async def ends(self, worker: Worker) -> AsyncIterator[None]:
        """While this lasts, a worker is asked to finish if the experiment is cut short."""

        async def wait() -> None:
            await self._cut.wait()
            worker.finish()

        waiting = asyncio.create_task(wait())
        try:
            yield
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
