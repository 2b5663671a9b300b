"""``tocsin register``: an account of one's own: made, with another password, or removed."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Final

import typer

from tocsin.cli.target import (
    DEFAULT_STATE,
    PASSWORD_VARIABLE,
    AddressOption,
    AuthoritiesOption,
    BrokerOption,
    InsecureOption,
    StateOption,
    find_broker,
)
from tocsin.client.accounts import Account, AsyncAccounts
from tocsin.errors import OperatorError
from tocsin.runtime.security.tls import client_context

NEW_PASSWORD_VARIABLE: Final = "TOCSIN_NEW_PASSWORD"
SAID: Final = {
    "active": "may log in",
    "waiting": "waits until the operator approves it",
    "removed": "was removed",
}


def register(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, with or without its ~.")],
    invitation: Annotated[
        str,
        typer.Option("--invitation", metavar="TOKEN", help="The operator's invitation, if one is needed."),
    ] = "",
    change_password: Annotated[
        bool, typer.Option("--change-password", help="Give the account another password.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the account.")] = False,
    broker: BrokerOption = "",
    address: AddressOption = "",
    state: StateOption = DEFAULT_STATE,
    authorities: AuthoritiesOption = "",
    insecure: InsecureOption = False,
) -> None:
    """Make an account, where the network allows it: `access.registration`.

        tocsin register ann --at mqtts://alerts.example.org:8883 --cafile ca.pem

        tocsin register ann --invitation 5c1f…

        tocsin register ann --change-password

        tocsin register ann --remove

    The password is asked for, or taken from TOCSIN_PASSWORD; a new one from TOCSIN_NEW_PASSWORD. The name of the
    account begins with ~.
    """
    if change_password and remove:
        raise OperatorError("--change-password and --remove exclude each other", "Say one of them")
    server = find_broker(broker, address, state, secure=bool(authorities or insecure))
    context = client_context(authorities=authorities, insecure=insecure) if server.secure else None
    asking = AsyncAccounts([server], tls=context)
    is_new = not (change_password or remove)
    password = _password(f"password of {name}", PASSWORD_VARIABLE, confirm=is_new)
    if remove:
        account = asyncio.run(asking.remove(name, password))
    elif change_password:
        new = _password(f"new password of {name}", NEW_PASSWORD_VARIABLE, confirm=True)
        account = asyncio.run(asking.change_password(name, password, new))
    else:
        account = asyncio.run(asking.register(name, password, invitation=invitation or None))
    typer.echo(_words(account, "has another password" if change_password else ""))


def _words(account: Account, done: str) -> str:
    return f"{account.name} {done or SAID.get(account.state, account.state)}"


def _password(what: str, variable: str, *, confirm: bool) -> str:
    """A password of the environment, or asked for. Raises ``OperatorError``."""
    text = os.environ.get(variable)
    if text is not None:
        return text
    if not sys.stdin.isatty():
        raise OperatorError(f"there is no terminal to ask for the {what}", f"Set {variable}")
    return str(typer.prompt(what, hide_input=True, confirmation_prompt=confirm, err=True))
