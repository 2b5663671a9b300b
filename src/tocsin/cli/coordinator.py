"""``tocsin coordinator``: the coordinator process."""

from __future__ import annotations

import typer

from tocsin.cli.sources import ConfigOption, SetOption, StateOption, process_settings
from tocsin.coordinator.main import serve
from tocsin.model.message import COORDINATOR
from tocsin.runtime.process import run


def coordinator(config: ConfigOption = None, sets: SetOption = None, state: StateOption = None) -> None:
    """Run the coordinator in the foreground.

    `tocsin up` does this by itself. Run it by hand for a network that is spread over machines:

        tocsin coordinator -c tocsin.toml
    """
    raise typer.Exit(run(COORDINATOR, process_settings(config, sets, state), serve))
