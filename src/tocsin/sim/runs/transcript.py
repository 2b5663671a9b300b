"""The story of a run: virtual time, who, what, and the cause that ties lines together.

A transcript is written only when a run is replayed; a run without one costs nothing for it. It says what machines
are told and what they do; timers that are set or cancelled are left out, for the story is that they fire.

    seconds     who            what  [cause]
       0.590670 server/3       hears Increment(client=client/2, number=2) from client/2  [client/2#2]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum

import msgspec

from tocsin.core import machine as kernel
from tocsin.core.machine import Effect, Event
from tocsin.ports import Cell, Entry, Page, Record

LINES_MAX = 2_000_000  # kept of one run: the newest; some 200 MB
TEXT_MAX = 240  # characters of one value
_SILENT = (kernel.SetTimer, kernel.CancelTimer)
_ENVELOPE = frozenset(("cause",))  # fields that the line shows already


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line. ``str`` of it is what people read, and what golden files hold."""

    at_us: int
    who: str
    text: str
    cause: str = ""

    def __str__(self) -> str:
        seconds, micros = divmod(self.at_us, 1_000_000)
        line = f"{seconds:>4}.{micros:06} {self.who:<14} {self.text}"
        return f"{line}  [{self.cause}]" if self.cause else line


class Transcript:
    """The lines of one run, in order."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=LINES_MAX)
        self.told = 0  # lines in all, also those that are no longer kept

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[Line]:
        return iter(self._lines)

    def add(self, at_us: int, who: str, text: str, cause: str = "") -> None:
        self.told += 1
        self._lines.append(Line(at_us, who, text, cause))

    def event(self, at_us: int, who: str, event: Event) -> None:
        self.add(at_us, who, describe_event(event), event.cause)

    def effect(self, at_us: int, who: str, effect: Effect) -> None:
        if not isinstance(effect, _SILENT):
            self.add(at_us, who, "  " + describe_effect(effect), effect.cause)

    def last(self, count: int) -> list[Line]:
        return list(self._lines)[-count:] if count > 0 else []

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)


def describe_event(event: Event) -> str:
    match event:
        case kernel.Started():
            return f"starts as {event.incarnation:x}"
        case kernel.Received():
            return f"hears {describe(event.message)} from {event.sender}"
        case kernel.TimerFired():
            return f"timer {event.name}"
        case kernel.Stored():
            return f"{event.request} is done: {describe(event.value)}"
        case kernel.StoreFailed():
            return f"{event.request} failed: {type(event.error).__name__}"
        case kernel.Followed():
            return f"follows {event.log}: {describe(event.entry)}"
        case kernel.Watched():
            change = event.change
            cell = "" if not change.key else f" {change.key} = {describe(change.value)} @{change.revision}"
            return f"watches {event.table}: {change.kind}{cell}"
    return describe(event)


def describe_effect(effect: Effect) -> str:
    match effect:
        case kernel.Send():
            return f"tells {effect.to} {describe(effect.message)}"
        case kernel.Append():
            expected = "" if effect.expected is None else f" expecting {effect.expected}"
            return f"asks {effect.request}: append {describe(effect.records)} to {effect.log}{expected}"
        case kernel.ReadLog():
            return f"asks {effect.request}: read {effect.log} {effect.subject} from {effect.start}"
        case kernel.GetKey():
            return f"asks {effect.request}: get {effect.key} of {effect.table}"
        case kernel.PutKey():
            expected = "" if effect.revision is None else f" expecting @{effect.revision}"
            return f"asks {effect.request}: put {effect.key} = {describe(effect.value)} in {effect.table}{expected}"
        case kernel.DeleteKey():
            return f"asks {effect.request}: delete {effect.key} of {effect.table}"
        case kernel.FollowLog():
            return f"asks to follow {effect.log} from {effect.start}"
        case kernel.WatchTable():
            return f"asks to watch {effect.table}"
        case kernel.Say():
            facts = " ".join(f"{name}={describe(value)}" for name, value in effect.facts.items())
            return f"says: {effect.text}{' ' if facts else ''}{facts}"
        case kernel.Stop():
            return f"stops: {effect.reason}"
    return describe(effect)


def describe(value: object) -> str:
    """A value as text that is the same in every process: no identities, and sets in order."""
    text = _describe(value)
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


def _describe(value: object) -> str:
    match value:
        case bytes():
            return _describe_bytes(value)
        case Enum():
            return str(value.value)
        case bool() | int() | str() | None:
            return str(value)
        case Page():
            return f"{len(value.entries)} entries up to {value.next - 1} of {value.last}"
        case Entry():
            return f"{value.position} {value.id} {_describe_bytes(value.payload)}"
        case Record():
            return f"{value.id} {_describe_bytes(value.payload)}"
        case Cell():
            return f"{_describe_bytes(value.value)} @{value.revision}"
        case msgspec.Struct():
            fields = [
                f"{name}={_describe(getattr(value, name))}"
                for name in value.__struct_fields__
                if name not in _ENVELOPE
            ]
            return f"{type(value).__name__}({', '.join(fields)})"
        case frozenset() | set():
            return "{" + ", ".join(sorted(_describe(each) for each in value)) + "}"
        case tuple() | list():
            return "[" + ", ".join(_describe(each) for each in value) + "]"
        case Mapping():
            return "{" + ", ".join(f"{_describe(k)}: {_describe(v)}" for k, v in value.items()) + "}"
        case BaseException():
            return f"{type(value).__name__}: {value}"
    return type(value).__name__


def _describe_bytes(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value[:24].hex()}{'…' if len(value) > 24 else ''}"
    return text if text.isprintable() else repr(text)
