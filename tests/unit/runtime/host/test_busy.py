"""How busy a process is, by what it could have had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tocsin.runtime.host.busy import ProcessTime
from tocsin.runtime.host.control_groups import Processor


class Groups:
    def __init__(self, *cores: float) -> None:
        self._cores = cores

    def processor(self) -> Iterator[Processor]:
        return (Processor("g", each, 0.0) for each in self._cores)


def share(used_s: float, waited_s: float, *cores: float, span_s: float = 10.0) -> float:
    at: dict[str, float] = dict.fromkeys(("clock", "used", "waited"), 0.0)
    groups: Any = Groups(*cores)
    process = ProcessTime(
        groups, clock=lambda: at["clock"], used=lambda: at["used"], waited=lambda: at["waited"]
    )
    at.update(clock=span_s, used=used_s, waited=waited_s)
    return process.look()


@pytest.mark.parametrize(
    ("used_s", "waited_s", "cores", "expected"),
    [
        (2.0, 0.0, (), 0.2),  # of one core
        (1.0, 0.0, (0.1,), 1.0),  # its group allows a tenth of one
        (4.0, 6.0, (), 1.0),  # others take the rest
        (1.0, 1.0, (), 0.2),
        (0.0, 0.0, (), 0.0),
        (12.0, 0.0, (4.0,), 1.0),  # threads
    ],
)
def test_busy_is_the_share_of_time_in_which_a_process_has_work(
    used_s: float, waited_s: float, cores: tuple[float, ...], expected: float
) -> None:
    assert share(used_s, waited_s, *cores) == pytest.approx(expected)


def test_this_process_is_as_busy_as_a_process_can_be() -> None:
    assert 0.0 <= ProcessTime().look() <= 1.0


def test_no_time_says_nothing() -> None:
    assert share(0.0, 0.0, span_s=0.0) == 0.0
