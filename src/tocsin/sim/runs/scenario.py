"""Scenarios: named worlds to run from many seeds, and where they are found.

A scenario is a function that fills a world with nodes, logs and tables and returns the invariants to hold it to::

    @scenario("counter", summary="a counter behind a lease")
    def build(world: World) -> list[Invariant]: ...

Those of Tocsin are the modules of ``tocsin.sim.scenarios``; a file of your own is loaded by its path.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from tocsin.errors import OperatorError
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.world import World

Build = Callable[[World], Iterable[Invariant]]
AnyBuild = TypeVar("AnyBuild", bound=Build)


class Scenario(msgspec.Struct, frozen=True):
    """One scenario. Trouble lasts ``trouble_us``; then everything heals, and ``settle_us`` later it must be well.

    With ``calm_us`` a run is over sooner, when all has been well for so long.
    """

    name: str
    summary: str
    build: Build
    faults: Profile
    trouble_us: int
    settle_us: int
    calm_us: int | None = None


class UnknownScenario(OperatorError):
    """There is no scenario of that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        super().__init__(
            f"there is no scenario {name!r}", f"Choose one of: {', '.join(known)}; or load a file with --from"
        )


class ScenarioFileUnusable(OperatorError):
    """A file of scenarios cannot be loaded."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        super().__init__(
            f"no scenarios can be loaded from {path}: {reason}",
            "Give a Python file that registers at least one with @scenario",
        )


_registered: dict[str, Scenario] = {}


def scenario(
    name: str,
    *,
    summary: str,
    faults: Profile | None = None,
    trouble_us: int = 20 * MILLION,
    settle_us: int = 20 * MILLION,
    calm_us: int | None = None,
) -> Callable[[AnyBuild], AnyBuild]:
    """Register a function as a scenario. The function itself stays as it is."""

    def register(build: AnyBuild) -> AnyBuild:
        known = _registered.get(name)
        if known is not None and known.build.__module__ != build.__module__:
            raise ValueError(
                f"two scenarios are named {name!r}: {known.build.__module__}, {build.__module__}"
            )
        _registered[name] = Scenario(
            name, summary, build, faults or Profile(), trouble_us, settle_us, calm_us
        )
        return build

    return register


def scenarios() -> dict[str, Scenario]:
    """Every scenario that is known by now, Tocsin's own among them, by name."""
    from tocsin.sim import scenarios as package  # its modules import this one

    for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"{package.__name__}.{module}")
    return dict(sorted(_registered.items()))


def find(name: str) -> Scenario:
    known = scenarios()
    if name not in known:
        raise UnknownScenario(name, known)
    return known[name]


def load(path: Path) -> list[Scenario]:
    """Run a Python file; the scenarios that it registered, in its order."""
    if not path.is_file():
        raise ScenarioFileUnusable(str(path), "there is no such file")
    scenarios()  # Tocsin's own first, so that a file cannot take their names unnoticed
    # A name of its own, the same in every process, keeps files of the same name apart.
    name = f"tocsin_scenarios_{'_'.join(path.resolve().with_suffix('').parts[1:])}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ScenarioFileUnusable(str(path), "it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ScenarioFileUnusable(str(path), f"{type(error).__name__}: {error}") from error
    found = [each for each in _registered.values() if each.build.__module__ == name]
    if not found:
        raise ScenarioFileUnusable(str(path), "it registers none")
    return found
