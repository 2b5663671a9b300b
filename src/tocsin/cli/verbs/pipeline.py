"""``tocsin pipeline``: the pipeline process."""

from __future__ import annotations

import typer

from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, process_settings
from tocsin.runtime.extra import check_installed
from tocsin.runtime.process import run


def pipeline(config: ConfigOption = None, sets: SetOption = None, state: StateOption = None) -> None:
    """Run the pipeline in the foreground: datasets, feeds and channels, on Spark.

    `tocsin up` runs one if the extra `tocsin[spark]` is installed. Run it by hand for a network that is spread over
    machines; a second one waits until the first has ended:

        tocsin pipeline -c tocsin.toml

        tocsin pipeline --set spark.master=spark://head:7077
    """
    check_installed()
    from tocsin.pipeline.main import serve  # behind the check: it imports what only the extra brings

    raise typer.Exit(run("pipeline", process_settings(config, sets, state), serve))
