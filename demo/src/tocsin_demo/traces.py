"""Movements and emergencies as files, in the format of the ONE simulator's external movement.

    # a comment
    0 600 0 4500 0 3400              minTime maxTime minX maxX minY maxY  (and minZ maxZ, which are not looked at)
    0 user-1 1200.5 800              time id x y  (and z), by rising time; seconds and metres
    0 user-2 15 3010.25
    100 user-1 1260.5 800

A **movement** trace says where each id is at each time. An **emergency** trace has one line for each emergency, whose
id is its kind, a hyphen and whatever makes it one of its own: ``fire-17``. A kind has a radius, within which it
concerns people.

Files come from elsewhere: lines, their length and their number are bounded, every number is finite and within the
bounds that the header gives, and an error names its line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TextIO

import msgspec

from tocsin.errors import FileUnreadable, OperatorError

RADII_M: Final = {"fire": 500.0, "flood": 1_000.0, "crash": 100.0, "storm": 2_000.0}  # by kind of emergency
LINE_MAX: Final = 512  # characters
SAMPLES_MAX: Final = 20_000_000
IDS_MAX: Final = 1_000_000
ID_MAX: Final = 128
_HEADER_SIZES: Final = (6, 8)
_SAMPLE_SIZES: Final = (4, 5)


class Bounds(msgspec.Struct, frozen=True):
    """The header: from when to when, and where."""

    begin_s: float
    end_s: float
    left_m: float
    right_m: float
    bottom_m: float
    top_m: float

    def holds(self, sample: Sample) -> bool:
        return (
            self.begin_s <= sample.at_s <= self.end_s
            and self.left_m <= sample.x_m <= self.right_m
            and self.bottom_m <= sample.y_m <= self.top_m
        )


class Sample(msgspec.Struct, frozen=True):
    """Somebody, or something, is there at that time."""

    at_s: float
    id: str
    x_m: float
    y_m: float


class Emergency(msgspec.Struct, frozen=True):
    """One that happens."""

    at_s: float
    id: str
    kind: str
    x_m: float
    y_m: float
    radius_m: float


class Trace:
    """A file that can be read several times; the header is read at once, and the samples as they are asked for."""

    def __init__(self, path: Path, *, samples_max: int = SAMPLES_MAX) -> None:
        """Raises ``FileUnreadable``."""
        self.path = path
        self._samples_max = samples_max
        with self._open() as file:
            _, self.bounds = self._header(self._lines(file))

    def __iter__(self) -> Iterator[Sample]:
        """All samples, by time. Raises ``FileUnreadable`` where the file is not what it should be."""
        with self._open() as file:
            lines = self._lines(file)
            self._header(lines)
            last_s, count, ids = -math.inf, 0, set[str]()
            try:
                for number, line in lines:
                    sample = self._sample(number, line)
                    if sample.at_s < last_s:
                        raise self._wrong(
                            number, f"time goes back from {last_s:g} to {sample.at_s:g}", "Sort it by time"
                        )
                    last_s, count = sample.at_s, count + 1
                    if count > self._samples_max:
                        raise self._wrong(number, f"more than {self._samples_max} samples", "Divide the file")
                    ids.add(sample.id)
                    if len(ids) > IDS_MAX:
                        raise self._wrong(number, f"more than {IDS_MAX} ids", "Divide the file")
                    yield sample
            except (OSError, UnicodeDecodeError) as error:
                raise FileUnreadable(
                    str(self.path), _said(error), "Give a text file that can be read"
                ) from None

    def _open(self) -> TextIO:
        try:
            return self.path.open(encoding="utf-8")
        except OSError as error:
            raise FileUnreadable(
                str(self.path), _said(error), "Give a file that is there and can be read"
            ) from None

    def _lines(self, file: TextIO) -> Iterator[tuple[int, str]]:
        """The lines with content, with their numbers."""
        number = 0
        while line := file.readline(LINE_MAX + 1):
            number += 1
            if len(line.rstrip("\n")) > LINE_MAX:
                raise self._wrong(
                    number, f"longer than {LINE_MAX} characters", "Give a trace of the ONE simulator"
                )
            words = line.strip()
            if words and not words.startswith("#"):
                yield number, words

    def _header(self, lines: Iterator[tuple[int, str]]) -> tuple[int, Bounds]:
        shape = "Begin with minTime maxTime minX maxX minY maxY"
        try:
            number, line = next(lines, (1, ""))
        except (OSError, UnicodeDecodeError) as error:
            raise FileUnreadable(str(self.path), _said(error), "Give a text file that can be read") from None
        words = line.split()
        if len(words) not in _HEADER_SIZES:
            raise self._wrong(number, f"the header has {len(words)} numbers, not 6 or 8", shape)
        bounds = Bounds(*(self._number(number, word, shape) for word in words[:6]))
        for name, low, high in (
            ("time", bounds.begin_s, bounds.end_s),
            ("x", bounds.left_m, bounds.right_m),
            ("y", bounds.bottom_m, bounds.top_m),
        ):
            if low > high:
                raise self._wrong(
                    number, f"the least {name} ({low:g}) is above the largest ({high:g})", shape
                )
        return number, bounds

    def _sample(self, number: int, line: str) -> Sample:
        words, shape = line.split(), "Give time id x y"
        if len(words) not in _SAMPLE_SIZES:
            raise self._wrong(number, f"{len(words)} words, not 4 or 5", shape)
        at_s, x_m, y_m = (self._number(number, words[each], shape) for each in (0, 2, 3))
        if len(words[1]) > ID_MAX:
            raise self._wrong(number, f"an id of {len(words[1])} characters", f"Give at most {ID_MAX}")
        sample = Sample(at_s, words[1], x_m, y_m)
        if not self.bounds.holds(sample):
            raise self._wrong(
                number, f"{line!r} is outside of the header's bounds", "Correct the one or the other"
            )
        return sample

    def _number(self, line: int, word: str, shape: str) -> float:
        try:
            value = float(word.replace("_", "?"))  # Python's own digits are not the format's
        except ValueError:
            raise self._wrong(line, f"{word!r} is no number", shape) from None
        if not math.isfinite(value):
            raise self._wrong(line, f"{word} is no finite number", shape)
        return value

    def _wrong(self, line: int, problem: str, remedy: str) -> FileUnreadable:
        return FileUnreadable(str(self.path), f"line {line}: {problem}", remedy)


def emergencies(samples: Iterable[Sample]) -> Iterator[Emergency]:
    """The emergencies of a trace. Raises ``OperatorError`` for a kind that is not known."""
    for each in samples:
        kind = each.id.partition("-")[0]
        if kind not in RADII_M:
            raise OperatorError(
                f"{each.id!r} is of no kind of emergency that is known",
                f"Name it {', '.join(f'{kind}-…' for kind in RADII_M)}",
            )
        yield Emergency(each.at_s, each.id, kind, each.x_m, each.y_m, RADII_M[kind])


def write(path: Path, bounds: Bounds, samples: Iterable[Sample]) -> int:
    """Write a trace; how many samples it has. Raises ``OperatorError`` if there is no place for it.

    A sample that the file could not be read back with is a mistake of the caller.
    """
    count, last_s = 0, -math.inf
    try:
        with path.open("w", encoding="utf-8") as file:
            file.write(" ".join(map(_written, msgspec.structs.astuple(bounds))) + "\n")
            for each in samples:
                if (
                    not bounds.holds(each)
                    or each.at_s < last_s
                    or len(each.id.split()) != 1
                    or len(each.id) > ID_MAX
                ):
                    raise ValueError(f"{each} does not fit into this trace")
                file.write(f"{_written(each.at_s)} {each.id} {_written(each.x_m)} {_written(each.y_m)}\n")
                last_s, count = each.at_s, count + 1
    except OSError as error:
        raise OperatorError(f"{path} cannot be written: {_said(error)}", "Give another place") from None
    return count


def _written(value: float) -> str:
    """The shortest text that is read as the same number."""
    return repr(int(value)) if value == int(value) else repr(value)


def _said(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not text in UTF-8"
