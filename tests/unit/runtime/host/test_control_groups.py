"""Limits of control groups, read from trees of files like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.runtime.host.control_groups import ControlGroups, Memory, Processor


class Kernel:
    """The files that a kernel would show."""

    def __init__(self, root: Path) -> None:
        self.process, self.mounted = root / "proc", root / "cgroup"
        self.process.mkdir()
        self.mounted.mkdir()

    def member_of(self, *lines: str) -> None:
        (self.process / "cgroup").write_text("\n".join(lines) + "\n")

    def group(self, path: str, **files: str) -> None:
        found = self.mounted / path
        found.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (found / name.replace("__", ".")).write_text(text)

    def groups(self) -> ControlGroups:
        return ControlGroups(self.process, self.mounted)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_where_there_are_no_groups_there_are_no_limits(kernel: Kernel) -> None:
    assert list(kernel.groups().memory()) == []
    assert list(kernel.groups().processor()) == []


def test_a_group_of_version_two_and_those_above_it_count(kernel: Kernel) -> None:
    kernel.member_of("0::/outer/inner")
    kernel.group("", cgroup__controllers="cpu memory")
    kernel.group("outer", memory__max="1000", memory__current="700", cpu__max="max 100000")
    kernel.group(
        "outer/inner",
        memory__max="800\n",
        memory__current="500\n",
        memory__stat="anon 300\ninactive_file 200\n",
        cpu__max="150000 100000",
        cpu__stat="usage_usec 2500000\nuser_usec 1",
    )
    groups = kernel.groups()
    assert list(groups.memory()) == [Memory(800, 300), Memory(1000, 700)]
    assert list(groups.processor()) == [Processor(str(kernel.mounted / "outer/inner"), 1.5, 2.5)]


def test_groups_of_version_one_count(kernel: Kernel) -> None:
    kernel.member_of("4:memory:/box", "2:cpu,cpuacct:/box", "0::/")
    kernel.group(
        "memory/box",
        memory__limit_in_bytes="900",
        memory__usage_in_bytes="400",
        memory__stat="inactive_file 1\ntotal_inactive_file 100",
    )
    kernel.group("cpu/box", **{"cpu__cfs_quota_us": "50000", "cpu__cfs_period_us": "100000"})
    kernel.group("cpuacct/box", cpuacct__usage="3000000000")
    groups = kernel.groups()
    assert list(groups.memory()) == [Memory(900, 300)]
    assert list(groups.processor()) == [Processor(str(kernel.mounted / "cpu/box"), 0.5, 3.0)]


def test_no_quota_is_no_limit(kernel: Kernel) -> None:
    kernel.member_of("2:cpu,cpuacct:/box")
    kernel.group("cpu/box", **{"cpu__cfs_quota_us": "-1", "cpu__cfs_period_us": "100000"})
    kernel.group("cpuacct/box", cpuacct__usage="3")
    assert list(kernel.groups().processor()) == []


def test_in_a_container_without_its_own_path_the_top_group_counts(kernel: Kernel) -> None:
    kernel.member_of("0::/../../somewhere/else")
    kernel.group("", cgroup__controllers="memory", memory__max="600", memory__current="100")
    assert list(kernel.groups().memory()) == [Memory(600, 100)]


@given(text=st.binary(max_size=200), maximum=st.binary(max_size=40), quota=st.binary(max_size=40))
def test_any_files_are_limits_or_none(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, maximum: bytes, quota: bytes
) -> None:
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    (kernel.process / "cgroup").write_bytes(b"0::/\n" + text)
    kernel.group("", cgroup__controllers="", memory__current="5")
    (kernel.mounted / "memory.max").write_bytes(maximum)
    (kernel.mounted / "cpu.max").write_bytes(quota)
    groups = kernel.groups()
    assert all(each.limit >= 0 and each.used >= 0 for each in groups.memory())
    assert all(each.cores >= 0 for each in groups.processor())


def test_those_of_this_machine_can_be_read() -> None:
    assert all(each.limit >= 0 for each in ControlGroups().memory())
    assert all(each.cores > 0 for each in ControlGroups().processor())
