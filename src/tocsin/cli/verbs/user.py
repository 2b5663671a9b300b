"""``tocsin user``: the users that may connect with a name and a password: the operator's, and those who register."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tocsin.cli.auditing import audited
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, network_settings, read
from tocsin.cli.verbs import user_accounts
from tocsin.core.access.accounts import is_registered
from tocsin.errors import OperatorError
from tocsin.runtime.security.users import PASSWORD_MAX_BYTES, read_users, remove_user, set_password

app = typer.Typer(
    help="Add, list and remove users; invite, approve and reject those who register. Brokers notice within a second.",
    no_args_is_help=True,
)

DAYS = 7  # that an invitation lasts, unless another time is given
DAYS_MAX = 365
NOTE_MAX_CHARS = 200
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The users file; `access.users` of the settings by default."),
]


@app.command()
def add(
    name: NameArgument,
    password_stdin: Annotated[
        bool,
        typer.Option("--password-stdin", help="Read the password from the first line of standard input."),
    ] = False,
    file: FileOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
) -> None:
    """Add a user, or change a password; clients that are connected with the old one are disconnected.

    The file is created if it is missing. It holds argon2 hashes, and only its owner can read it.

        tocsin user add gateway -c tocsin.toml

        printf %s "$SECRET" | tocsin user add gateway --password-stdin --file users
    """
    path = _path(file, config, sets)
    with audited(_log_of(path, file, config, sets), "add user", name, f"tocsin user add {name}") as note:
        new = set_password(path, name, _password(password_stdin))
        note.result = "" if new else "it has another password"
    typer.echo(f"{name} was {'added to' if new else 'given another password in'} {path}")


@app.command(name="list")
def list_users(
    file: FileOption = None, config: ConfigOption = None, sets: SetOption = None, state: StateOption = None
) -> None:
    """Print the names of all users, one per line; where users register, also where each comes from.

    tocsin user list -c tocsin.toml
    """
    access = read(config, sets, state).settings.access
    registers = file is None and access.registration != "off"
    if file is not None or access.users or not registers:
        for name in sorted(read_users(_path(file, config, sets))):
            typer.echo(f"{name}\tusers file" if registers else name)
    if registers:
        for each in user_accounts.at_store(network_settings(config, sets, state), user_accounts.accounts):
            typer.echo(f"{each.name}\t{user_accounts.words_of(each)}")


@app.command()
def remove(
    name: NameArgument,
    file: FileOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Remove a user and disconnect its clients.

        tocsin user remove gateway -c tocsin.toml

        tocsin user remove '~ann' -c tocsin.toml

    The name of a user who registered stays taken for as long as sessions of it may be kept.
    """
    if file is None and is_registered(name):
        settings = network_settings(config, sets, state)
        with audited(settings.state, "remove user", name, f"tocsin user remove {name}"):
            user_accounts.at_store(settings, lambda table: user_accounts.remove(table, name, settings))
        typer.echo(f"{name} was removed")
        return
    path = _path(file, config, sets)
    with audited(_log_of(path, file, config, sets), "remove user", name, f"tocsin user remove {name}"):
        remove_user(path, name)
    typer.echo(f"{name} was removed from {path}")


@app.command()
def invite(
    days: Annotated[
        int, typer.Option("--days", min=1, max=DAYS_MAX, help="How long the invitation lasts.")
    ] = DAYS,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="For yourself: whom it is for.")] = "",
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Make an invitation, with which somebody can register once, where `access.registration` is `invited`.

    It prints the token, which is not stored anywhere: hand it on by a way that others cannot read.

        tocsin user invite --days 2 --note "Ann's phone" -c tocsin.toml
    """
    if len(note) > NOTE_MAX_CHARS:
        raise OperatorError(f"the note has {len(note)} characters", f"Give at most {NOTE_MAX_CHARS}")
    settings = network_settings(config, sets, state)
    with audited(settings.state, "invite user", note, f"tocsin user invite --days {days}"):
        token = user_accounts.at_store(settings, lambda table: user_accounts.invite(table, days, note))
    typer.echo(token)


@app.command()
def pending(config: ConfigOption = None, sets: SetOption = None, state: StateOption = None) -> None:
    """Print the names of those who have registered and wait for approval, one per line.

    tocsin user pending -c tocsin.toml
    """
    for each in user_accounts.at_store(network_settings(config, sets, state), user_accounts.accounts):
        if each.state == "waiting":
            typer.echo(each.name)


@app.command()
def approve(
    name: NameArgument, config: ConfigOption = None, sets: SetOption = None, state: StateOption = None
) -> None:
    """Let in a user who has registered and waits.

    tocsin user approve '~ann' -c tocsin.toml
    """
    settings = network_settings(config, sets, state)
    with audited(settings.state, "approve user", name, f"tocsin user approve {name}"):
        user_accounts.at_store(settings, lambda table: user_accounts.approve(table, name, settings))
    typer.echo(f"{name} may log in")


@app.command()
def reject(
    name: NameArgument, config: ConfigOption = None, sets: SetOption = None, state: StateOption = None
) -> None:
    """Drop a user who has registered and waits; the name is free again.

    tocsin user reject '~ann' -c tocsin.toml
    """
    settings = network_settings(config, sets, state)
    with audited(settings.state, "reject user", name, f"tocsin user reject {name}"):
        user_accounts.at_store(settings, lambda table: user_accounts.reject(table, name, settings))
    typer.echo(f"{name} was rejected")


def _path(file: Path | None, config: Path | None, sets: list[str] | None) -> Path:
    if file is not None:
        return file
    users = read(config, sets).settings.access.users
    if not users:
        raise OperatorError(
            "the settings name no users' file (access.users)",
            "Name one there, or with --file FILE; brokers look for it in the settings",
        )
    return Path(users)


def _log_of(path: Path, file: Path | None, config: Path | None, sets: list[str] | None) -> Path:
    """The audit log to use: the state directory's, or one beside a named file where there is no such directory."""
    state = Path(read(config, sets).settings.state)
    return path.absolute().parent if file is not None and not state.is_dir() else state


def _password(from_stdin: bool) -> bytes:
    if from_stdin:
        line = sys.stdin.buffer.readline(PASSWORD_MAX_BYTES + 3)
        return line.removesuffix(b"\n").removesuffix(b"\r")
    if not sys.stdin.isatty():
        raise OperatorError("there is no terminal to ask for the password", "Give it with --password-stdin")
    text: str = typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    return text.encode()
