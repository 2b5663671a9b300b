"""A fault beside the load of ``tocsin chaos``, and the promises that its account must show, whatever the fault was.

The account has what was lost, twice at QoS 2, out of order, strange, or came to somebody who had unsubscribed: all of
them nothing. Every fault was carried out, and everybody heard again within ``SETTLE_S`` of the last one.
"""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

UNPLUG = Path(__file__).with_name("unplug.py")
NAMES = ("north-1", "north-2", "south-1", "south-2")
BROKERS = json.dumps([{"id": each, "cluster": each.partition("-")[0]} for each in NAMES])
FEW = json.dumps([{"id": each, "cluster": "north"} for each in ("north-1", "north-2", "north-3")])
LOAD = ("--subscribers", "16", "--publishers", "3", "--rate", "4")
SETTLE_S = 60  # the bound within which everybody hears again, and the last message arrives
DEADLINE_S = 400.0  # of one run of it
NOTHING = ("lost", "repeated_once", "out_of_order", "strange", "unrecovered")


def brokers(text: str = BROKERS) -> tuple[str, str]:
    return ("--set", f"brokers={text}")


def account(
    network: dict[str, Any],
    *options: str,
    within: Sequence[str] = (),
    load: Sequence[str] = LOAD,
    settle_s: int = SETTLE_S,
) -> dict[str, Any]:
    """Run ``tocsin chaos`` to its end, and hold its account against the promises."""
    command = [*within, sys.executable, "-m", "tocsin", "chaos", "--state", network["state"], "--json"]
    command += [*load, "--settle", f"{settle_s}s", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout, f"it ended with {done.returncode}\n{done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    totals, faults = found["totals"], found["faults"]
    story = f"{done.stderr}\n{shown(found)}"
    print(story)
    for figure in NOTHING:
        assert totals[figure] == 0, f"{figure}\n{totals['examples']}\n{story}"
    assert not found["unasked"], f"somebody was told what it had unsubscribed from\n{story}"
    assert totals["acknowledged"] and totals["delivered"] >= totals["expected"], story
    for fault in faults:
        assert fault["pids"] and fault["recovery_s"] is not None, f"{fault}\n{story}"
    assert found["kept"] and done.returncode == 0, story
    return found


def shown(found: dict[str, Any]) -> str:
    """The figures of an account in a line."""
    names = (
        "published",
        "acknowledged",
        "refused",
        "expected",
        "delivered",
        *NOTHING,
        "repeated",
        "repeated_to_some",
    )
    figures = {name: found["totals"][name] for name in names}
    rest = {name: found[name] for name in ("unasked", "dropped_repeats", "skipped", "ended", "kept")}
    return json.dumps({**figures, "recovery": found["totals"]["recovery"], **rest})


def program(path: Path, *words: object) -> Path:
    """A program for ``--own``: ``unplug.py`` with these words, then ``begin`` or ``end``."""
    command = " ".join(f"'{word}'" for word in (sys.executable, "-P", UNPLUG, *words))
    path.write_text(f'#!/bin/sh\nexec {command} "$1"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
