"""The scenario in the how-to guide runs as it is printed there."""

from __future__ import annotations

import re
from pathlib import Path

from tocsin.sim.runs.runner import run
from tocsin.sim.runs.scenario import load

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "simulate.md"


def test_the_scenario_of_the_guide_holds(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    path = tmp_path / "tennis.py"
    path.write_text(code)
    (scenario,) = load(path)
    for seed in range(20):
        assert run(scenario, seed).broken is None
