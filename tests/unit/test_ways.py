"""``scripts/ways`` counts the modules on the way of a message; the architecture page has its counts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_shortest_way_has_as_many_modules_as_documented() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    documented = re.search(r"^\| 1\. a QoS 0 publish, one broker \| (\d+) \|$", page, re.MULTILINE)
    command = [sys.executable, str(ROOT / "scripts/ways"), "one broker"]
    counted = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert documented is not None and counted.split()[0] == documented[1], counted
