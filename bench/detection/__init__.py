"""How soon a broker that is gone is missed, how often one that lives is, and what heartbeats cost.

Each contender (ours at both paces, fixed time-outs as peers) is measured under the same conditions: in the simulator,
where beats can be lost and hours cost seconds, and with real processes, where processors are busy and processes freeze.
The bytes are those of real brokers' beats and pulses, as they are on the bus, and as the server counts them.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from bench.detection import real, virtual
from bench.detection.figures import HEAD, Figures
from bench.detection.peer import CONTENDERS
from bench.detection.plot import plot
from tocsin.sim.chance import MILLION

RESULTS = Path(__file__).parent.parent / "results"
VIRTUAL_US, QUICK_VIRTUAL_US = 3_630 * MILLION, 150 * MILLION
KILLS, QUICK_KILLS = 6, 1

Table = Mapping[str, Mapping[str, Figures]]


def measure_virtual(quick: bool) -> Table:
    until_us = QUICK_VIRTUAL_US if quick else VIRTUAL_US
    table: dict[str, dict[str, Figures]] = {each.name: {} for each in CONTENDERS}
    print(f"simulated, {until_us // MILLION:,} s a cell\n  {'':30}{'':30}{HEAD}")
    for condition, trouble in virtual.CONDITIONS.items():
        for contender in CONTENDERS:
            figures = virtual.measure(contender, trouble, until_us)
            table[contender.name][condition] = figures
            print(f"  {condition:30}{contender.name:30}{figures.row()}", flush=True)
    return table


def measure_real(quick: bool) -> tuple[Table, list[real.Traffic]]:
    contenders = CONTENDERS[:1] if quick else CONTENDERS[:4]
    conditions = list(real.CONDITIONS)[:2] if quick else list(real.CONDITIONS)
    kills = QUICK_KILLS if quick else KILLS
    table: dict[str, dict[str, Figures]] = {each.name: {} for each in contenders}
    traffic: list[real.Traffic] = []
    print(f"real processes, {kills} kills a cell\n  {'':30}{'':30}{HEAD}")
    for contender in contenders:
        measured, bytes_ = real.measure(contender, conditions, kills)
        traffic.append(bytes_)
        for condition, figures in measured.items():
            table[contender.name][condition] = figures
            print(f"  {condition:30}{contender.name:30}{figures.row()}", flush=True)
    return table, traffic


def main(argv: Sequence[str] | None = None) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    parser = argparse.ArgumentParser(prog="python -m bench.detection", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller and rougher")
    parser.add_argument("--only", choices=("virtual", "real"), help="one part; printed, not kept")
    chosen = parser.parse_args(argv)
    began = time.monotonic()
    figures: dict[str, object] = {
        "machine": {"python": platform.python_version(), "machine": platform.machine()}
    }
    if chosen.only != "real":
        simulated = measure_virtual(chosen.quick)
        figures["virtual"] = simulated
    if chosen.only != "virtual":
        processes, traffic = measure_real(chosen.quick)
        figures["real"], figures["traffic"] = processes, traffic
        for each in traffic:
            print(f"  {each.contender:30}{each.words()}")
    if chosen.only is None:
        RESULTS.mkdir(exist_ok=True)
        name = "detection-quick" if chosen.quick else "detection"
        encoded = json.dumps(msgspec.to_builtins(figures), indent=1)
        (RESULTS / f"{name}.json").write_text(encoded + "\n")
        print(plot(simulated, RESULTS / f"{name}.png"))
    print(f"took {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
