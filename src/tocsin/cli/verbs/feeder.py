"""``tocsin feeder``: the process that fills datasets from outside."""

from __future__ import annotations

import typer

from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, process_settings
from tocsin.feeds.main import serve
from tocsin.runtime.process import run


def feeder(config: ConfigOption = None, sets: SetOption = None, state: StateOption = None) -> None:
    """Run the feeder in the foreground: it accepts records of feeds (messages, HTTP, files, Kafka).

    Records are kept until the pipeline takes them, so that nothing is lost while Spark is down. A second feeder waits
    until the first has ended:

        tocsin feeder -c tocsin.toml

        tocsin feeder --set feeds.http_port=8080
    """
    raise typer.Exit(run("feeder", process_settings(config, sets, state), serve))
