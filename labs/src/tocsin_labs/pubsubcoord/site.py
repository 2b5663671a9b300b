"""What is measured of brokers in LANs and hubs in a cloud, whosever they are: their processor time and memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil


class Cost(msgspec.Struct, frozen=True):
    """What brokers of one kind took, in the mean of them and at most."""

    share: float  # of one processor
    share_most: float
    mb: float
    mb_most: float


class Site(ABC):
    """A network that runs."""

    def __init__(self, edges: Sequence[str], hubs: Sequence[str]) -> None:
        self.edges = edges  # one for each LAN
        self.hubs = hubs

    @property
    @abstractmethod
    def entrances(self) -> list[tuple[str, int]]:
        """Where clients come in, by LAN."""

    @abstractmethod
    def processes(self) -> Mapping[str, int]:
        """The process ids of brokers that run."""

    @abstractmethod
    async def delay(self) -> None:
        """Renew the delays, if they do not last."""

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds that each broker has had."""
        return {name: worked_s(pid) for name, pid in self.processes().items()}

    def cost(self, names: Iterable[str], before: Mapping[str, float], took_s: float) -> Cost:
        """What these took since then."""
        after, names = self.cpu_s(), list(names)
        pids = self.processes()
        shares = [(after[name] - before[name]) / took_s for name in names]
        mbs = [psutil.Process(pids[name]).memory_info().rss / 1e6 for name in names]
        return Cost(sum(shares) / len(shares), max(shares), sum(mbs) / len(mbs), max(mbs))


def worked_s(pid: int) -> float:
    """The processor seconds of a process; to the nanosecond, where the kernel says that of its threads."""
    try:
        threads = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    except OSError:
        threads = []
    if threads:
        return sum(int(each.split()[0]) for each in threads) / 1e9
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
