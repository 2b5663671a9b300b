"""``tocsin broker ID``: one broker process."""

from __future__ import annotations

from typing import Annotated

import typer

from tocsin.broker.main import serve
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, changes, process_settings
from tocsin.errors import OperatorError
from tocsin.model.network import broker_address
from tocsin.runtime.process import is_handed_down, run


def broker(
    broker_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a broker in the settings.")],
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Run one broker of the network in the foreground.

    `tocsin up` does this for every broker on one machine. Run it by hand to put brokers on machines of their
    own, with the same settings file everywhere and `nats.urls` naming the servers:

        tocsin broker north-1 -c tocsin.toml

    It follows the addresses in its own table of that file while it runs; every other setting counts from the next
    start on.
    """
    settings = process_settings(config, sets, state)
    reread = None if is_handed_down() else changes(config, sets, state)
    if settings.broker(broker_id) is None:
        known = ", ".join(each.id for each in settings.brokers)
        raise OperatorError(f"there is no broker {broker_id!r} in the settings", f"Name one of: {known}")
    raise typer.Exit(
        run(broker_address(broker_id), settings, lambda process: serve(process, broker_id, reread))
    )
