"""``tocsin config``: the settings in effect, where they came from, and their reference."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, read
from tocsin.config import SECRET_KEYS, SETTINGS, Broker, Criterion, Loaded, Scoring, value_of
from tocsin.config.loading import DEFAULT
from tocsin.config.reference import markdown

app = typer.Typer(help="Show the settings in effect, or the reference of all settings.", no_args_is_help=True)
MASK = "***"
CONFIGURATION = "scoring.configuration"  # sets others


class Both(msgspec.Struct, frozen=True):
    """A number for brokers that serve clients, and another for standbys."""

    serving: float
    standby: float


@app.command()
def show(
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object: the value and origin of each key.")
    ] = False,
) -> None:
    """Show every setting with its value and where that came from. Secrets are masked.

        tocsin config show -c tocsin.toml --set nats.port=4333

    Exit code 2 and one sentence if a setting is bad; so this also checks a settings file.
    """
    loaded = read(config, sets, state)
    if json:
        found = {key: {"value": shown(loaded, key), "origin": origin(loaded, key)} for key in SETTINGS}
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    table = Table("setting", "value", "from")
    for key in SETTINGS:
        came = origin(loaded, key)
        style = "dim" if came == DEFAULT else ""
        table.add_row(key, Text(_words(shown(loaded, key))), Text(came), style=style)
    Console(soft_wrap=False).print(table)


@app.command()
def reference() -> None:
    """Print the reference of all settings as Markdown: the page docs/reference/settings.md."""
    typer.echo(markdown(), nl=False)


def shown(loaded: Loaded, key: str) -> Any:
    """A value that may be shown."""
    value = value_of(loaded.settings, key)
    if value is None:
        return _by_configuration(loaded.settings.scoring, key.rpartition(".")[2])
    return MASK if key in SECRET_KEYS and value else value


def _by_configuration(scoring: Scoring, name: str) -> float | Both:
    """What the configuration says."""
    serving, standby = (scoring.in_effect(name, each) for each in (False, True))
    return serving if serving == standby else Both(serving, standby)


def origin(loaded: Loaded, key: str) -> str:
    """Where a value came from."""
    chosen = loaded.origins[CONFIGURATION] != DEFAULT and value_of(loaded.settings, key) is None
    return CONFIGURATION if chosen else loaded.origins[key]


def _words(value: Any) -> str:
    if isinstance(value, Both):
        return f"{value.serving}, standbys {value.standby}"
    if isinstance(value, tuple):
        return "\n".join(map(_item, value))
    return str(value)


def _item(item: Any) -> str:
    match item:
        case Broker():
            return _broker(item)
        case Criterion(name=name, command=command, weight=weight):
            return f"{name}: {shlex.join(command)}, weight {weight:g}"
    return str(item)


def _broker(broker: Broker) -> str:
    ports = ", ".join(
        str(port) if name == "port" else f"{name} {port}" for name, port in broker.ports().items()
    )
    return f"{broker.id}: {broker.role} of {broker.cluster}, {broker.host}:{ports}"
