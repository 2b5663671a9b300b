"""``tocsin certs``: the certificates by which processes of the network know each other."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from tocsin.cli.auditing import Note, audited
from tocsin.cli.layout import console
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, read
from tocsin.config import Settings
from tocsin.errors import OperatorError
from tocsin.runtime.security.authority import DAYS, DAYS_MAX, ROLES, Authority, Certificate
from tocsin.runtime.security.credentials import BUNDLE, certificates_directory

app = typer.Typer(
    help="List, issue and rotate the certificates of the network's own processes. Those of clients' listeners "
    "are yours (`tls.certificate`).",
    no_args_is_help=True,
)
TAKE_UP_S = 3.0  # for processes on this machine to have read new files: they look every second
SHOWN_HEX = 16  # of a fingerprint, in a table

RoleArgument = Annotated[str, typer.Argument(metavar="ROLE", help=f"One of {', '.join(ROLES)}.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the process, such as north-1.")]


@app.command(name="list")
def list_certificates(
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """List authorities and certificates: role, name, hosts, when they end, and fingerprint (SHA-256).

    tocsin certs list --state /var/lib/tocsin
    """
    authority = _authority(read(config, sets, state).settings)
    now, found = _now(), authority.certificates()
    believed = authority.authorities()
    newest = believed[0][0]
    if json:
        facts = {
            "authorities": [{"fingerprint": print_, "ends": ends} for print_, ends in believed],
            "certificates": [_facts(each, newest) for each in found],
        }
        typer.echo(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode())
        return
    table = Table("role", "name", "hosts", "ends", "fingerprint", "")
    for print_, ends in believed:
        note = "" if print_ == newest else "is being replaced: tocsin certs rotate"
        table.add_row("authority", "", "", _ends(ends, now), print_[:SHOWN_HEX], note)
    for each in found:
        hosts, identity, until = ", ".join(each.hosts), each.identity, _ends(each.ends, now)
        table.add_row(
            identity.role, identity.name, hosts, until, each.fingerprint[:SHOWN_HEX], _note(each, newest)
        )
    console().print(table)


@app.command()
def issue(
    role: RoleArgument,
    name: NameArgument,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="HOST", help="A name or address under which it is reached. Repeatable."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="For another machine: write the files to this directory, ready to copy.",
        ),
    ] = None,
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, max=DAYS_MAX)] = DAYS,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Issue a certificate for a process: of this machine, or with --out of another one.

    Copy what is in DIR to `certs/` of the state directory there, over a secure connection, and delete DIR.

        tocsin certs issue broker south-1 --host south.example.org --out for-south-1
    """
    settings = read(config, sets, state).settings
    words = (
        *(f" --host {each}" for each in host or ()),
        f" --days {days}",
        f" --out {out}" if out is not None else "",
    )
    what = f"tocsin certs issue {role} {name}{''.join(words)}"
    with audited(settings.state, "issue certificate", f"{role} {name}", what):
        made = _authority(settings).issue(name, role=role, hosts=host or (), days=days, out=out)
    typer.echo(f"{made.certificate_path}: key and certificate of {role} {name}, for {days} days")
    if out is not None:
        typer.echo(
            f"{made.ca_path}: the authorities that it believes; copy both to certs/ of the state directory there"
        )


@app.command()
def renew(config: ConfigOption = None, sets: SetOption = None, state: StateOption = None) -> None:
    """Reissue what has less than a third of its validity left. `tocsin up` does this by itself, every day.

    tocsin certs renew
    """
    settings = read(config, sets, state).settings
    with audited(settings.state, "renew certificates", "", "tocsin certs renew") as note:
        authority = _authority(settings)
        renewed = authority.reissue(ageing_only=True)
        note.result = _names(renewed)
    for each in renewed:
        typer.echo(f"{each.identity}: until {each.ends:%Y-%m-%d}")
    if not renewed:
        typer.echo("nothing ends soon on this machine")
    _remind(each for each in authority.certificates() if each.elsewhere and each.ageing(_now()))


@app.command()
def rotate(
    replace: Annotated[
        bool,
        typer.Option("--authority", help="Replace the authority too; both are trusted until that is done."),
    ] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Reissue all certificates of this machine, with new keys; running processes use them within seconds.

    With --authority the authority is replaced, without a restart: first both authorities are trusted, then
    certificates are issued, then the old one is dropped. If certificates were issued for other machines it stops after
    the first step and says what to do; `tocsin certs rotate` then goes on.

        tocsin certs rotate

        tocsin certs rotate --authority
    """
    settings = read(config, sets, state).settings
    what = f"tocsin certs rotate{' --authority' if replace else ''}"
    with audited(settings.state, "rotate certificates", "authority" if replace else "", what) as note:
        _rotate(_authority(settings), replace, note)


def _rotate(authority: Authority, replace: bool, note: Note) -> None:
    if replace:
        authority.renew()
        bundle = authority.directory / BUNDLE
        elsewhere = [each for each in authority.certificates() if each.elsewhere]
        if elsewhere:
            typer.echo(
                f"a new authority is believed beside the old one: copy {bundle} to the other machines,"
            )
            typer.echo(
                "then issue their certificates again (tocsin certs issue … --out DIR), then: tocsin certs rotate"
            )
            _remind(elsewhere)
            note.result = "a new authority is believed beside the old one; nothing was issued yet"
            return
        typer.echo("a new authority is believed beside the old one")
        time.sleep(TAKE_UP_S)
    renewed = authority.reissue()
    note.result = _names(renewed)
    typer.echo(f"{len(renewed)} certificates were issued again")
    if len(authority.authorities()) == 1:
        return
    time.sleep(TAKE_UP_S)
    if left := authority.retire():
        note.result += "; the old authority stays"
        typer.echo("the old authority stays, for certificates of it are in use elsewhere; issue them again:")
        _remind(left)
    else:
        note.result += "; the old authority is believed no more"
        typer.echo("the old authority is believed no more")


@app.command()
def forget(
    role: RoleArgument,
    name: NameArgument,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Forget a certificate that was issued for a machine that is gone.

    It stays valid until it ends. To shut it out, rotate the authority.

        tocsin certs forget broker south-1
    """
    settings = read(config, sets, state).settings
    with audited(
        settings.state, "forget certificate", f"{role} {name}", f"tocsin certs forget {role} {name}"
    ):
        _authority(settings).forget(role, name)
    typer.echo(
        f"{role} {name} is forgotten; its certificate stays good until it ends, or the authority is rotated"
    )


def _authority(settings: Settings) -> Authority:
    directory = certificates_directory(settings.state)
    if not (directory / BUNDLE).exists():
        raise OperatorError(
            f"there is no authority in {directory}", "Make one with `tocsin init` or `tocsin up`"
        )
    return Authority.open_or_make(directory, settings.network)


def _names(certificates: Iterable[Certificate]) -> str:
    names = ", ".join(f"{each.identity.role} {each.identity.name}" for each in certificates)
    return f"issued again: {names or 'none'}"


def _remind(certificates: Iterable[Certificate]) -> None:
    """The commands that issue these again."""
    for each in certificates:
        hosts = "".join(f" --host {host}" for host in each.hosts)
        typer.echo(f"    tocsin certs issue {each.identity.role} {each.identity.name}{hosts} --out DIR")


def _facts(certificate: Certificate, newest: str) -> dict[str, object]:
    identity = certificate.identity
    return {
        "role": identity.role,
        "name": identity.name,
        "uri": identity.uri,
        "hosts": certificate.hosts,
        "ends": certificate.ends,
        "fingerprint": certificate.fingerprint,
        "elsewhere": certificate.elsewhere,
        "newest_authority": certificate.issuer == newest,
    }


def _note(certificate: Certificate, newest: str) -> str:
    notes = ["on another machine"] if certificate.elsewhere else []
    if not certificate.issuer:
        notes.append("of no authority that is believed")
    elif certificate.issuer != newest:
        notes.append("of the old authority")
    return "; ".join(notes)


def _ends(ends: datetime.datetime, now: datetime.datetime) -> str:
    return f"{ends:%Y-%m-%d} ({(ends - now).days} days)" if ends > now else f"{ends:%Y-%m-%d}: over"


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
