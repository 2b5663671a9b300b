"""Where a scene is shown: a view that is kept up to date on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

from rich.console import Console
from rich.live import Live

from tocsin.cli.layout import console as wide_console
from tocsin_demo.scene import Scene
from tocsin_demo.scenery import clock, draw, look, plain, recovery_words

LINE_S: Final = 10.0  # between two lines that say how it is


class Screen:
    """One demonstration's."""

    def __init__(self, seconds: float, console: Console | None = None) -> None:
        console = console or Console(highlight=False)
        # No thread of rich's: each change refreshes the view.
        moves = console.is_terminal and not console.is_dumb_terminal  # the cursor
        self._live = Live(console=console, auto_refresh=False) if moves else None
        self._console = console if self._live is not None else wide_console()
        self._seconds = seconds
        self._words = ""
        self._began_s = time.monotonic()
        self._line_s = 0.0  # when the last line was printed
        self._told: set[int] = set()  # failures whose recovery was told
        self.channel: dict[str, Any] = {}  # how the channel is, as somebody asked last

    def tell(self, words: str) -> None:
        """Something begins."""
        self._words = words
        if self._live is None or not self._live.is_started:
            self._line(words)

    def print(self, shown: Any, *, wrap: bool = True) -> None:
        """Show something that stays; without ``wrap``, so that its lines can be copied."""
        with contextlib.suppress(OSError):  # nobody reads any more: the scene goes on to its end
            self._console.print(shown, soft_wrap=not wrap)

    def _line(self, words: str) -> None:
        self.print(f"{clock(time.monotonic() - self._began_s):>6}  {words}")

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Show a view while this lasts; the last one stays."""
        if self._live is None:
            yield
            return
        self._live.start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._live.stop()

    def show(self, played: Scene) -> None:
        """The scene as it is now."""
        now_s = time.monotonic()
        if self._live is None:
            self._show_lines(played, now_s)
            return
        with contextlib.suppress(OSError):
            seen = look(played, now_s, self._seconds, self.channel)
            self._live.update(draw(seen, self._words, self._console.width), refresh=True)

    def _show_lines(self, played: Scene, now_s: float) -> None:
        for number, failure in enumerate(played.failures):
            course = played.course(failure)
            waits = course.taken_after_s is None and any(each in played.down for each in failure.brokers)
            if number not in self._told and course.back == len(course.passages) and not waits:
                self._told.add(number)
                self._line(recovery_words(course))
        if now_s - self._line_s >= LINE_S:
            self._line_s = now_s
            self._line(plain(look(played, now_s, self._seconds, self.channel)))
