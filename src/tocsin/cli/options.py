"""Options that commands share: for one parameter, a command is given the options that its value is made from."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., None]


def made_by(maker: Callable[..., Any], parameter: str) -> Callable[[Command], Command]:
    """For commands that want a parameter: they get what the maker returns, and its options after their own."""
    options = inspect.signature(maker, eval_str=True).parameters

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters
        mine = [each for name, each in own.items() if name != parameter]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            made = maker(**{name: given.pop(name) for name in options})
            command(**{parameter: made}, **given)

        vars(run)["__signature__"] = inspect.Signature([*mine, *options.values()])
        return run

    return decorate
