"""The tables of all machines: their states, timers and rows, and the text of them that opens each module.

What follows from a row is read from the source: the states that its method assigns, or that a method does which it
calls. That is all that may follow, whatever the machine knows besides its state. A failure prints the text that the
module should have.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import tocsin
from tocsin.core.machine import TableMachine, TimerFired

ANY = "*"
WIDTH = 120
PACKAGES = ("tocsin.core", "tocsin.sim.scenarios.counter")
SOURCE = Path(tocsin.__file__).parent

NOTHING = frozenset({"nothing"})  # what comes of an event that is ignored

Rows = dict[str, dict[str, frozenset[str]]]  # state → event → the states that may follow; empty: it stays


def machines() -> list[type[TableMachine]]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    found = [each for each in TableMachine.__subclasses__() if each.__module__.startswith(PACKAGES)]
    return sorted(found, key=lambda each: each.__qualname__)


def states_of(machine: type[TableMachine]) -> type[StrEnum]:
    return type(machine.state)


def module_of(machine: type[TableMachine]) -> ModuleType:
    return importlib.import_module(machine.__module__)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def methods_of(machine: type[TableMachine]) -> dict[str, ast.FunctionDef]:
    path = Path(inspect.getfile(machine))
    (found,) = [
        each for each in tree(path).body if isinstance(each, ast.ClassDef) and each.name == machine.__name__
    ]
    return {each.name: each for each in found.body if isinstance(each, ast.FunctionDef)}


def members(node: ast.AST, enum: type[StrEnum]) -> Iterator[str]:
    """The members of an enum that are named in a piece of source."""
    for each in ast.walk(node):
        match each:
            case ast.Attribute(value=ast.Name(id=owner), attr=member) if owner == enum.__name__:
                yield enum[member]


def assigned(method: ast.FunctionDef, states: type[StrEnum]) -> Iterator[str]:
    """The states that a method assigns, or hands to another method."""
    for each in ast.walk(method):
        match each:
            case ast.Assign(targets=[target], value=value) if "self.state" in ast.unparse(target):
                yield from members(value, states)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self")), args=arguments):
                for argument in arguments:
                    yield from members(argument, states)


def reached(machine: type[TableMachine], name: str) -> frozenset[str]:
    """The states that a method leads to, by itself or by the methods of the machine that it calls."""
    methods, states = methods_of(machine), states_of(machine)
    seen, todo, found = set[str](), [name], set[str]()
    while todo:
        current = todo.pop()
        if current in seen or current not in methods:
            continue
        seen.add(current)
        found.update(assigned(methods[current], states))
        todo += [
            each.func.attr
            for each in ast.walk(methods[current])
            if isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and isinstance(each.func.value, ast.Name)
            and each.func.value.id == "self"
            and each.func.attr != "handle"  # the event that is handled again has a row of its own
        ]
    return frozenset(found)


def rows_of(machine: type[TableMachine]) -> Rows:
    rows: Rows = {}
    for (state, kind), handler in machine.table.items():
        ignored = handler.__name__ == "_ignore"
        after = NOTHING if ignored else reached(machine, handler.__name__)
        rows.setdefault(str(state), {})[kind.__name__] = after
    order = [*map(str, states_of(machine)), ANY]
    return {state: rows[state] for state in sorted(rows, key=order.index)}


def text_of(machine: type[TableMachine]) -> str:
    """The table as the module should have it."""
    rows, order = rows_of(machine), [*map(str, states_of(machine)), *NOTHING]
    width = max(map(len, rows)) + 2
    lines = [f"Transitions of ``{machine.__name__}``:", ""]
    for state, events in rows.items():
        grouped: dict[frozenset[str], list[str]] = {}
        for event, after in events.items():
            grouped.setdefault(after, []).append(event)
        head = state
        for after, names in grouped.items():
            arrow = f" → {', '.join(sorted(after, key=order.index))}" if after else ""
            words = [f"{name}," for name in names[:-1]] + [f"{names[-1]}{arrow}"]
            line = f"    {head:{width}}"
            for word in words:
                if len(line) + len(word) + 1 > WIDTH:
                    lines.append(line.rstrip())
                    line = " " * (4 + width)
                line += f"{word} "
            lines.append(line.rstrip())
            head = ""
    return "\n".join(lines)


ALL = machines()
named = pytest.mark.parametrize("machine", ALL, ids=lambda each: each.__name__)


def test_every_machine_of_the_core_is_looked_at() -> None:
    assert len(ALL) >= 19


@named
def test_every_state_is_reached_and_has_rows(machine: type[TableMachine]) -> None:
    states, rows = states_of(machine), rows_of(machine)
    assert set(rows) <= {*map(str, states), ANY}
    if ANY not in rows:
        *going_on, last = map(str, states)
        assert set(rows) >= set(going_on), f"only the last state, {last}, may be the end of everything"
    written = {state for method in methods_of(machine).values() for state in assigned(method, states)}
    assert written | {machine.state} == set(states), "no state is there that nothing leads to"


@named
def test_every_row_names_a_method_of_the_machine(machine: type[TableMachine]) -> None:
    for handler in machine.table.values():
        assert handler.__name__ in methods_of(machine)
        assert getattr(machine, handler.__name__) is handler


@named
def test_every_timer_is_set_and_handled(machine: type[TableMachine]) -> None:
    takes_timers = any(kind is TimerFired for _, kind in machine.table)
    assert takes_timers == (machine.timers is not None)
    if machine.timers is None:
        return
    timers = machine.timers
    handled = {
        name
        for each in ast.walk(tree(Path(inspect.getfile(machine))))
        if isinstance(each, ast.MatchValue | ast.Compare)
        for name in members(each, timers)
    }
    assert handled == set(timers), "the machine's module compares with each of them"
    used = [
        name
        for path in SOURCE.rglob("*.py")
        if timers.__name__ in path.read_text()
        for name in members(tree(path), timers)
    ]
    once = {name for name in timers if used.count(name) < 2}
    assert not once, "what is only compared is set nowhere"


def test_no_timer_is_set_by_a_plain_string() -> None:
    for name in PACKAGES:
        for path in Path(importlib.import_module(name).__path__[0]).rglob("*.py"):
            for each in ast.walk(tree(path)):
                match each:
                    case ast.Call(func=ast.Name(id="SetTimer" | "CancelTimer"), keywords=keywords):
                        (said,) = [keyword.value for keyword in keywords if keyword.arg == "name"]
                        plain = isinstance(said, ast.Constant | ast.JoinedStr | ast.BinOp)
                        constant = isinstance(said, ast.Name) and said.id.isupper()
                        assert not plain and not constant, f"{path}: {ast.unparse(each)}"


@named
def test_the_text_of_the_module_has_the_table(machine: type[TableMachine]) -> None:
    expected = text_of(machine)
    text = module_of(machine).__doc__ or ""
    found = re.search(
        rf"^Transitions of ``{machine.__name__}``:\n\n(?: {{4}}.*\n)+", f"{text}\n", re.MULTILINE
    )
    assert found is not None and found[0].rstrip() == expected, (
        f"write into the module's text:\n\n{expected}\n"
    )
