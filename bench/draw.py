"""Draw the pictures of a measurement again, from what it kept: ``python -m bench draw NAME… [--out DIR]``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tocsin_labs import drawing

RESULTS: Final = Path(__file__).parent / "results"
DRAWN: Final = ("takeover",)  # measurements with a module ``plot`` that draws from files


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench draw", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"one of: {', '.join(DRAWN)}")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="where the figures are")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where pictures go; beside the figures if not given"
    )
    chosen = parser.parse_args(argv)
    unknown = [name for name in chosen.names if name not in DRAWN]
    if unknown:
        parser.error(f"no pictures of {unknown[0]!r}; name one of {', '.join(DRAWN)}")
    if not drawing.available():
        print(drawing.MISSING, file=sys.stderr)
        return 1
    out: Path = chosen.out or chosen.results
    out.mkdir(parents=True, exist_ok=True)
    for name in chosen.names:
        made = importlib.import_module(f"bench.{name}.plot").plot(chosen.results, out)
        if not made:
            print(
                f"{name}: {chosen.results} has no figures of it; run python -m bench {name}", file=sys.stderr
            )
            return 1
        for each in made:
            print(f"drew {out / each}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
