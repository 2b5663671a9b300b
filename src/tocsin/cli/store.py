"""``tocsin store``: who may do what in the network's NATS servers."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from tocsin.cli.auditing import audited
from tocsin.cli.sources import ConfigOption, SetOption, StateOption, network_settings
from tocsin.runtime.store_access import (
    add_key,
    add_user,
    named_keys,
    remove_key,
    remove_user,
    role_users,
    rotate_key,
    sql_users,
)
from tocsin.runtime.store_access import users as all_users
from tocsin.store.roles import ROLES
from tocsin.store.server import user_lines

app = typer.Typer(
    help="See who may do what in the network's NATS servers; keys of processes, and users of SQL.",
    no_args_is_help=True,
)
users = typer.Typer(
    help="Users of SQL: who may ask the pipeline under a name of their own.", no_args_is_help=True
)
app.add_typer(users, name="user")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The user's name, as access rules have it.")
]
keys = typer.Typer(
    help="Keys of processes: for machines elsewhere, and the roles' own on this machine.",
    no_args_is_help=True,
)
app.add_typer(keys, name="key")
RoleArgument = Annotated[str, typer.Argument(metavar="ROLE", help=f"One of {', '.join(ROLES)}.")]
KeyArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the process or machine: south-1.")]
KNOWN = (
    "Embedded servers know it within seconds; servers of your own when you give them what `tocsin store accounts` "
    "prints."
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
    found = all_users(settings)
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
        f"{name} was added; {'its public key' if public else 'the seed to give it'} is in {path}. {KNOWN}"
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
    """Remove a user of SQL; whoever is connected with its key is disconnected.

    tocsin store user remove ann
    """
    found = network_settings(config, sets, state).state
    with audited(found, "remove user of SQL", name, f"tocsin store user remove {name}"):
        remove_user(found, name)
    typer.echo(f"{name} was removed. {KNOWN}")


@keys.command(name="add")
def add_process(
    role: RoleArgument,
    name: KeyArgument,
    public: Annotated[
        str,
        typer.Option("--public", metavar="KEY", help="The process's own public nkey (U…); no seed is made."),
    ] = "",
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Add a key of its own for a process elsewhere, which may do what its role may. It can be taken back by itself.

        tocsin store key add broker south-1

    Copy the file to that machine, over a line that nobody reads, name it there with `nats.credentials`, and delete
    it here but for its public key if you like: `--public` needs no seed here at all.
    """
    found = network_settings(config, sets, state).state
    with audited(found, "add key", f"{role} {name}", f"tocsin store key add {role} {name}"):
        path = add_key(found, role, name, public)
    kind = "its public key" if public else "the seed to give it"
    typer.echo(f"{role} {name} was added; {kind} is in {path}. {KNOWN}")


@keys.command(name="list")
def list_keys(config: ConfigOption = None, sets: SetOption = None, state: StateOption = None) -> None:
    """Print role, name and public key of every key of a process, one a line; `-` is the role's own on this machine.

    tocsin store key list
    """
    settings = network_settings(config, sets, state)
    named = {key: name for _, name, key in named_keys(settings.state)}
    for each in role_users(settings):
        typer.echo(f"{each.name.split(' ')[0]} {named.get(each.public_key, '-')} {each.public_key}")


@keys.command(name="remove")
def remove_process(
    role: RoleArgument,
    name: KeyArgument,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Take back the key of a process elsewhere: whoever is connected with it is disconnected.

    tocsin store key remove broker south-1
    """
    found = network_settings(config, sets, state).state
    with audited(found, "remove key", f"{role} {name}", f"tocsin store key remove {role} {name}"):
        remove_key(found, role, name)
    typer.echo(f"{role} {name} was removed. {KNOWN}")


@keys.command()
def rotate(
    role: RoleArgument, config: ConfigOption = None, sets: SetOption = None, state: StateOption = None
) -> None:
    """Replace the key of a role on this machine, while the network runs.

        tocsin store key rotate broker

    Processes of this machine log in with the new one within seconds; nothing that was acknowledged is lost. Machines
    that have a copy of the old file are shut out until they have the new one. Keys of processes elsewhere
    (`tocsin store key add`) stay.
    """
    found = network_settings(config, sets, state).state
    with audited(found, "rotate key", role, f"tocsin store key rotate {role}"):
        path = rotate_key(found, role)
    typer.echo(f"the key of {role} in {path} was replaced. {KNOWN}")
