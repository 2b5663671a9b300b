"""Runs the operator's command when a tier should have another size (``routing.command``).

One run at a time, of RUN_S at most. The command is run when members are missing or one may stop, and again every
AGAIN_S while that is so: it may fail, and what it asks for takes a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from tocsin.core.coordination.leader.growth import Wanted
from tocsin.runtime.machines.clock import monotonic_s

RUN_S: Final = 60.0
AGAIN_S: Final = 30.0
WORDS_MAX: Final = 200  # of what a command said that are repeated


class Grower:
    """Asks for members by a command; does nothing if there is none."""

    def __init__(self, command: tuple[str, ...], clock: Callable[[], float] = monotonic_s) -> None:
        self._command = command
        self._clock = clock
        self._asked: dict[str, tuple[tuple[int, str], float]] = {}  # tier → what was asked for last, and when
        self._running: asyncio.Task[None] | None = None
        self._log = structlog.get_logger()

    def heed(self, tiers: Mapping[str, Wanted]) -> None:
        """Tiers should be such."""
        if not self._command or (self._running is not None and not self._running.done()):
            return
        for tier, wanted in tiers.items():
            stop = wanted.spare[0] if wanted.spare else ""
            if wanted.members <= wanted.there and not stop:
                continue
            now = wanted.members, stop
            before, at_s = self._asked.get(tier, (None, 0.0))
            if now != before or self._clock() - at_s >= AGAIN_S:
                self._asked[tier] = now, self._clock()
                self._running = asyncio.create_task(self._run(tier, *now))
                return

    async def _run(self, tier: str, members: int, stop: str) -> None:
        places = {"{tier}": tier, "{members}": str(members), "{stop}": stop}
        words = []
        for word in self._command:
            for place, value in places.items():
                word = word.replace(place, value)
            words.append(word)
        facts = {"tier": tier, "members": members, "stop": stop}
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self._log.error("routing.command cannot be run", problem=str(error), **facts)
            return
        try:
            async with asyncio.timeout(RUN_S):
                _, said = await process.communicate()
        except TimeoutError:
            self._log.error("routing.command takes too long", **facts)
        else:
            if process.returncode:
                last = said.strip().rpartition(b"\n")[2][:WORDS_MAX].decode("utf-8", "replace")
                self._log.error("routing.command failed", code=process.returncode, problem=last, **facts)
            else:
                self._log.info("a tier is to have another size", **facts)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def close(self) -> None:
        """End a run that is under way."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
