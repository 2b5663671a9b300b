"""``tocsin config``: the settings in effect, where they came from, and their reference."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tocsin.cli.sources import ConfigOption, SetOption, StateOption, read
from tocsin.config import SECRET_KEYS, SETTINGS, Broker, Criterion, Loaded, value_of
from tocsin.config.catalogue import BY_CONFIGURATION
from tocsin.config.reference import markdown

app = typer.Typer(help="Show the settings in effect, or the reference of all settings.", no_args_is_help=True)
MASK = "***"


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
        found = {key: {"value": shown(loaded, key), "origin": loaded.origins[key]} for key in SETTINGS}
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    table = Table("setting", "value", "from")
    for key in SETTINGS:
        origin = loaded.origins[key]
        style = "dim" if origin == "default" else ""
        table.add_row(key, Text(_words(shown(loaded, key))), Text(origin), style=style)
    Console(soft_wrap=False).print(table)


@app.command()
def reference() -> None:
    """Print the reference of all settings as Markdown: the page docs/reference/settings.md."""
    typer.echo(markdown(), nl=False)


def shown(loaded: Loaded, key: str) -> Any:
    """A value that may be shown."""
    value = value_of(loaded.settings, key)
    return MASK if key in SECRET_KEYS and value else value


def _words(value: Any) -> str:
    if value is None:
        return BY_CONFIGURATION
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
