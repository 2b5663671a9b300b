"""``tocsin user``: the users that may connect with a name and a password."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tocsin.cli.auditing import audited
from tocsin.cli.sources import ConfigOption, SetOption, read
from tocsin.errors import OperatorError
from tocsin.runtime.security.users import PASSWORD_MAX_BYTES, read_users, remove_user, set_password

app = typer.Typer(help="Add, list and remove users. Brokers notice within a second.", no_args_is_help=True)

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
def list_users(file: FileOption = None, config: ConfigOption = None, sets: SetOption = None) -> None:
    """Print the names of all users, one per line.

    tocsin user list -c tocsin.toml
    """
    for name in sorted(read_users(_path(file, config, sets))):
        typer.echo(name)


@app.command()
def remove(
    name: NameArgument, file: FileOption = None, config: ConfigOption = None, sets: SetOption = None
) -> None:
    """Remove a user and disconnect its clients.

    tocsin user remove gateway -c tocsin.toml
    """
    path = _path(file, config, sets)
    with audited(_log_of(path, file, config, sets), "remove user", name, f"tocsin user remove {name}"):
        remove_user(path, name)
    typer.echo(f"{name} was removed from {path}")


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
