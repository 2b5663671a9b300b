"""The limits of this process's control groups, and what of them is in use (Linux, versions 1 and 2).

A container's machine is larger than what the container may use. A group is bound by its own limits and by those of
all groups above it, so that each of them counts. Where there are no control groups there are no limits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

MICRO: Final = 1e-6
NANO: Final = 1e-9
DEPTH_MAX: Final = 32  # groups above each other
FILE_MAX_BYTES: Final = 64 << 10


class Memory(msgspec.Struct, frozen=True):
    """How many bytes a group may have, and how many it has that the kernel could not take back at once."""

    limit: int
    used: int


class Processor(msgspec.Struct, frozen=True):
    """How many cores a group may keep busy, and for how many seconds it has, all in all."""

    group: str
    cores: float
    used_s: float


class ControlGroups:
    """The groups of one process. They are found once; what they say is read at every look."""

    def __init__(self, process: Path = Path("/proc/self"), mounted: Path = Path("/sys/fs/cgroup")) -> None:
        self._unified: list[Path] = []
        self._memory: list[Path] = []
        self._processor: list[tuple[Path, Path]] = []  # where the limit is, and where the use is counted
        own = dict(_memberships(_text(process / "cgroup")))
        if (path := own.get("")) is not None:
            for base in (mounted, mounted / "unified"):
                if (base / "cgroup.controllers").exists():
                    self._unified = _upwards(base, path)
                    break
        if (path := own.get("memory")) is not None:
            self._memory = _upwards(mounted / "memory", path)
        if (path := own.get("cpu")) is not None and own.get("cpuacct") == path:
            limits, uses = _upwards(mounted / "cpu", path), _upwards(mounted / "cpuacct", path)
            if len(limits) == len(uses):
                self._processor = list(zip(limits, uses, strict=True))

    def memory(self) -> Iterator[Memory]:
        """Memory of each control group that has a limit."""
        for group in self._unified:
            limit, used = _number(group / "memory.max"), _number(group / "memory.current")
            if limit is not None and used is not None:
                yield Memory(limit, max(used - _entry(group / "memory.stat", "inactive_file"), 0))
        for group in self._memory:
            limit, used = _number(group / "memory.limit_in_bytes"), _number(group / "memory.usage_in_bytes")
            if limit is not None and used is not None:
                yield Memory(limit, max(used - _entry(group / "memory.stat", "total_inactive_file"), 0))

    def processor(self) -> Iterator[Processor]:
        """Processor time of each control group that has a limit."""
        for group in self._unified:
            match _text(group / "cpu.max").split():
                case [quota, period] if quota.isdecimal() and period.isdecimal() and int(period):
                    used_s = _entry(group / "cpu.stat", "usage_usec") * MICRO
                    yield Processor(str(group), int(quota) / int(period), used_s)
        for limits, uses in self._processor:
            quota_us, period_us = (
                _number(limits / "cpu.cfs_quota_us"),
                _number(limits / "cpu.cfs_period_us"),
            )
            used_ns = _number(uses / "cpuacct.usage")
            if quota_us and period_us and used_ns is not None:
                yield Processor(str(limits), quota_us / period_us, used_ns * NANO)


def _memberships(text: str) -> Iterator[tuple[str, str]]:
    """Controller and group, of each line ``number:controllers:group``; version 2 is the one without controllers."""
    for line in text.splitlines():
        match line.split(":", 2):
            case [_, controllers, group]:
                yield from ((each, group) for each in controllers.split(","))


def _upwards(base: Path, group: str) -> list[Path]:
    """The group and those above it, as far as they can be seen from here; in a container that may be the top alone."""
    parts = [part for part in group.split("/") if part not in ("", ".", "..")]
    if ".." in group.split("/") or not base.joinpath(*parts).is_dir():
        parts = []
    found = [base.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    return [each for each in found[:DEPTH_MAX] if each.is_dir()]


def _text(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError), path.open(encoding="ascii") as file:
        return file.read(FILE_MAX_BYTES)
    return ""


def _number(path: Path) -> int | None:
    """A whole number; None if there is none, or no limit (``max``, -1)."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _entry(path: Path, name: str) -> int:
    """A line ``name number``; 0 if there is none."""
    for line in _text(path).splitlines():
        match line.split():
            case [key, value] if key == name and value.isdecimal():
                return int(value)
    return 0
