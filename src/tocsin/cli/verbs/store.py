"""``tocsin store``: the rights of each role in the network's NATS servers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tocsin.cli.auditing import audited
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, network_settings
from tocsin.runtime.network.store_access import (
    access,
    add_key,
    add_user,
    named_keys,
    public_keys,
    remove_key,
    remove_user,
    role_users,
    rotate_key,
    sql_users,
)
from tocsin.runtime.network.streams import prepare as prepare_streams
from tocsin.store.nats.login import READERS
from tocsin.store.servers.embedded import access_lines
from tocsin.store.servers.roles import ROLES, STREAMS

app = typer.Typer(
    help="Show who may do what in the network's NATS servers; manage process keys and SQL users.",
    no_args_is_help=True,
)
users = typer.Typer(
    help="SQL users: they may query the pipeline under their own names.", no_args_is_help=True
)
app.add_typer(users, name="user")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name, as in the access rules.")]
keys = typer.Typer(
    help="Process keys: for other machines, and for the roles on this one.",
    no_args_is_help=True,
)
app.add_typer(keys, name="key")
RoleArgument = Annotated[str, typer.Argument(metavar="ROLE", help=f"One of {', '.join(ROLES)}.")]
KeyArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the process or machine, such as south-1.")
]
KNOWN = (
    "Embedded servers know it within seconds; servers of your own when you give them what `tocsin store accounts` "
    "prints."
)


@app.command()
def accounts(
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of a configuration.")
    ] = False,
    one_account: Annotated[
        bool,
        typer.Option(
            "--one-account",
            help="For servers whose streams are in their global account; a stolen key can purge there.",
        ),
    ] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Print the accounts and users of the store, with what each may publish and subscribe to, as NATS servers are told.

    Embedded servers have this already. For servers of your own, include it in their configuration, give each machine
    the seeds of what runs there (`nats/keys` of the state directory), and make the streams with `tocsin store prepare`.
    Keys that are missing are made.

        tocsin store accounts > tocsin-users.conf
    """
    settings = network_settings(config, sets, state)
    found = access(settings, one_account=one_account or None)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    typer.echo("\n".join(access_lines(found)))


@app.command()
def prepare(config: ConfigOption = None, sets: SetOption = None, state: StateOption = None) -> None:
    """Make the streams of a network that are missing, and give all of them the bounds of the settings.

    `tocsin up` does so for embedded servers. Servers of your own that know roles let only the operator do it: run this
    with the operator's key before processes start, and again when `messages.keep_s`, `messages.keep_bytes` or
    `[shares]` have changed.

        tocsin store prepare -c tocsin.toml
    """
    settings = network_settings(config, sets, state)
    with audited(settings.state, "prepare streams", settings.network, "tocsin store prepare"):
        names = asyncio.run(prepare_streams(settings, pipeline=True))
    typer.echo(f"{len(names)} logs and tables are as the settings have them: {', '.join(names)}")


@users.command()
def add(
    name: NameArgument,
    public: Annotated[
        str,
        typer.Option(
            "--public", metavar="KEY", help="The user's own public nkey (U…); no seed is generated."
        ),
    ] = "",
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Add an SQL user. Access rules say what it may define, drop and query.

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
    """Print the names and public keys of all SQL users, one per line.

    tocsin store user list
    """
    for each in sql_users(network_settings(config, sets, state)):
        typer.echo(f"{each.name.removeprefix('user ')} {each.public_key}")


@users.command()
def remove(
    name: NameArgument, config: ConfigOption = None, sets: SetOption = None, state: StateOption = None
) -> None:
    """Remove an SQL user and disconnect its connections.

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
        typer.Option(
            "--public",
            metavar="KEYS",
            help="The process's own public keys (U…,U…), as `tocsin store key public` prints them; no seed is made.",
        ),
    ] = "",
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Add a key for a process on another machine, with the rights of its role. You can revoke it by itself.

        tocsin store key add broker south-1

    Copy the file to that machine, over a secure channel, and name it there with `nats.credentials`. With
    `--public` no seed is needed here at all: make one there, and have `tocsin store key public FILE` print its keys.
    """
    found = network_settings(config, sets, state).state
    with audited(found, "add key", f"{role} {name}", f"tocsin store key add {role} {name}"):
        path = add_key(found, role, name, public)
    kind = "its public key" if public else "the seed to give it"
    typer.echo(f"{role} {name} was added; {kind} is in {path}. {KNOWN}")


@keys.command(name="list")
def list_keys(config: ConfigOption = None, sets: SetOption = None, state: StateOption = None) -> None:
    """Print role, name and public key of every process key, one per line; `-` is the role's own on this machine.

    Keys that were added with one public key in an earlier release are marked: remove them, and add them with both.

        tocsin store key list
    """
    settings = network_settings(config, sets, state)
    named = {keys[0]: (name, keys[1]) for _, name, keys in named_keys(settings.state)}
    for each in role_users(settings):
        if each.account != STREAMS:
            continue
        role, (name, second) = each.name.split(" ")[0], named.get(each.public_key, ("-", "-"))
        note = "" if second or role not in READERS else " (one public key only: it can purge logs)"
        typer.echo(f"{role} {name} {each.public_key}{note}")


@keys.command()
def public(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A seed.", exists=True, dir_okay=False)],
) -> None:
    """Print the two public keys of a seed, for `tocsin store key add --public` where the servers are.

    tocsin store key public south-1.nk
    """
    typer.echo(",".join(public_keys(file)))


@keys.command(name="remove")
def remove_process(
    role: RoleArgument,
    name: KeyArgument,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Revoke the key of a process elsewhere and disconnect its connections.

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
