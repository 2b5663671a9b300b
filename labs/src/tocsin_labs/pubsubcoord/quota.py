"""Processes that may use a share of a processor only: control groups of the kernel, of either version.

Each held process has a group of its own, which is taken away in the end. It needs root, or a group of one's own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tocsin.errors import OperatorError

FIRST: Final = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpu,cpuacct"))  # version 1
SECOND: Final = Path("/sys/fs/cgroup")  # version 2
LEAST_US: Final = 1_000  # of a period: the kernel takes no less
PERIOD_US: Final = 20_000  # short, so that messages do not wait long for the next one
PERIOD_MOST_US: Final = 1_000_000
REMEDY: Final = "Run it as root on Linux, where control groups can be written"


class Quotas:
    """The groups of one experiment."""

    def __init__(self, root: Path, version: int) -> None:
        self._root, self._version = root, version
        self._groups: dict[str, Path] = {}

    @property
    def words(self) -> str:
        return f"control groups, version {self._version}"

    def hold(self, name: str, pid: int, share: float) -> None:
        """Let a process have that share of one processor from now on."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = self._root / f"tocsin-lab-{os.getpid()}-{name}"
            group.mkdir()
        quota_us, period_us = slice_of(share)
        if self._version == 1:
            (group / "cpu.cfs_quota_us").write_text("-1")
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        (group / "cgroup.procs").write_text(str(pid))

    def free(self, name: str) -> None:
        """Let it have all it wants."""
        group = self._groups[name]
        words = ("cpu.cfs_quota_us", "-1") if self._version == 1 else ("cpu.max", "max")
        (group / words[0]).write_text(words[1])

    def close(self) -> None:
        """Processes that still run go back to where all are."""
        for group in self._groups.values():
            with contextlib.suppress(OSError):
                for pid in (group / "cgroup.procs").read_text().split():
                    with contextlib.suppress(OSError):
                        (self._root / "cgroup.procs").write_text(pid)
                group.rmdir()


def slice_of(share: float) -> tuple[int, int]:
    """The quota and the period for a share, in µs."""
    period_us = min(PERIOD_MOST_US, max(PERIOD_US, round(LEAST_US / share)))
    return max(LEAST_US, round(share * period_us)), period_us


def place() -> tuple[Path, int] | None:
    """Where groups can be made, and of which version they are."""
    for root in FIRST:
        if (root / "cpu.cfs_quota_us").exists() and os.access(root, os.W_OK):
            return root, 1
    control = SECOND / "cgroup.subtree_control"
    if control.exists() and "cpu" in control.read_text().split() and os.access(SECOND, os.W_OK):
        return SECOND, 2
    return None


@contextmanager
def quotas() -> Iterator[Quotas]:
    """Groups while the context lasts. ``OperatorError`` where there can be none."""
    found = place()
    if found is None:
        raise OperatorError("no control group can be made here that holds a process to a quota", REMEDY)
    made = Quotas(*found)
    try:
        yield made
    except OSError as error:
        raise OperatorError(f"a control group refuses: {error}", REMEDY) from None
    finally:
        made.close()
