"""``tocsin store``: who may do what in the network's NATS servers."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from tocsin.cli.auditing import audited
from tocsin.cli.sources import ConfigOption, SetOption, StateOption, network_settings
from tocsin.runtime.store_access import add_user, remove_user, role_users, sql_users
from tocsin.store.server import user_lines

app = typer.Typer(
    help="See who may do what in the network's NATS servers, and name users of SQL.", no_args_is_help=True
)
users = typer.Typer(
    help="Users of SQL: who may ask the pipeline under a name of their own.", no_args_is_help=True
)
app.add_typer(users, name="user")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The user's name, as access rules have it.")
]
RESTART = (
    "Embedded servers know it when `tocsin up` is started next; servers of your own when you give them what "
    "`tocsin store accounts` prints."
)


@app.command()
def accounts(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Print the users of the store, with what each may publish and subscribe to, as NATS servers are told.

    Embedded servers have this already. For servers of your own, put it into the `authorization` block of their
    configuration, and give each machine the seeds of what runs there (`nats/keys` of the state directory). Keys that
    are missing are made.

        tocsin store accounts > tocsin-users.conf
    """
    settings = network_settings(config, sets, state)
    found = (*role_users(settings), *sql_users(settings))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    typer.echo("\n".join(("authorization {", "  timeout: 5", *user_lines(found), "}")))


@users.command()
def add(
    name: NameArgument,
    public: Annotated[
        str, typer.Option("--public", metavar="KEY", help="The user's own public nkey (U…); no seed is made.")
    ] = "",
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Add a user of SQL. What it may define, drop and query is said by access rules.

    tocsin store user add ann
    """
    found = network_settings(config, sets, state).state
    with audited(found, "add user of SQL", name, f"tocsin store user add {name}"):
        path = add_user(found, name, public)
    typer.echo(
        f"{name} was added; {'its public key' if public else 'the seed to give it'} is in {path}. {RESTART}"
    )


@users.command(name="list")
def list_users(config: ConfigOption = None, sets: SetOption = None, state: StateOption = None) -> None:
    """Print the names and public keys of all users of SQL, one a line.

    tocsin store user list
    """
    for each in sql_users(network_settings(config, sets, state)):
        typer.echo(f"{each.name.removeprefix('user ')} {each.public_key}")


@users.command()
def remove(
    name: NameArgument, config: ConfigOption = None, sets: SetOption = None, state: StateOption = None
) -> None:
    """Remove a user of SQL.

    tocsin store user remove ann
    """
    found = network_settings(config, sets, state).state
    with audited(found, "remove user of SQL", name, f"tocsin store user remove {name}"):
        remove_user(found, name)
    typer.echo(f"{name} was removed. {RESTART}")
