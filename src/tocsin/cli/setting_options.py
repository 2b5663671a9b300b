"""Where settings come from on the command line: a file, the environment, and options."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tocsin.config import Broker, File, Loaded, Settings, load
from tocsin.errors import OperatorError, SettingError
from tocsin.runtime.network.directory import read_network
from tocsin.runtime.network.store_access import embedded
from tocsin.runtime.process import inherited_settings
from tocsin.runtime.security.followed_files import NO_FILE, signature

DEFAULT_FILE = Path("tocsin.toml")
FILE_MAX_BYTES = 1 << 20  # 256 brokers with comments are a tenth of it

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--config",
        metavar="FILE",
        help="Settings file; by default `tocsin.toml` in this directory, if it exists.",
        show_default=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="One setting, such as `nats.port=4333`; overrides file and environment. Repeatable.",
        show_default=False,
    ),
]
StateOption = Annotated[
    str | None,
    typer.Option("--state", metavar="DIR", help="State directory; the same as `--set state=DIR`."),
]


def read(config: Path | None, sets: list[str] | None, state: str | None = None) -> Loaded:
    """Settings from everywhere; ``OperatorError`` if a source cannot be read or holds a bad value."""
    flags = _flags(sets or [])
    if state is not None:
        flags["state"] = state
    return load(file=_file(config), environment=os.environ, flags=flags)


def process_settings(config: Path | None, sets: list[str] | None, state: str | None = None) -> Settings:
    """Settings of one process: from its parent, or read here; then with the keys of the state directory."""
    if (handed := inherited_settings()) is not None:
        return handed
    settings = read(config, sets, state).settings
    if settings.nats.urls:
        return settings
    return msgspec.structs.replace(settings, nats=embedded(settings.nats, settings.state))


def changes(
    config: Path | None, sets: list[str] | None, state: str | None = None
) -> Callable[[], Settings | None]:
    """Reads the settings again when their file has changed since the last time; None when it has not."""
    path = config or DEFAULT_FILE
    seen = signature(path)

    def changed() -> Settings | None:
        nonlocal seen
        now = signature(path)
        if now in (seen, NO_FILE):
            return None
        settings = read(config, sets, state).settings
        seen = now
        return settings

    return changed


def network_settings(config: Path | None, sets: list[str] | None, state: str | None = None) -> Settings:
    """Settings for a command that asks a network: as ``tocsin up`` started it on the state directory, if it did."""
    settings = process_settings(config, sets, state)
    if settings.nats.urls or (file := read_network(Path(settings.state))) is None:
        return settings
    return msgspec.structs.replace(
        settings,
        network=file.network,
        nats=msgspec.structs.replace(settings.nats, urls=file.nats),
        brokers=tuple(Broker(id=each.id, cluster=each.cluster, role=each.role) for each in file.brokers),
        pipeline=msgspec.structs.replace(
            settings.pipeline, storage=settings.pipeline.storage or file.storage
        ),
    )


def _flags(sets: list[str]) -> dict[str, object]:
    flags: dict[str, object] = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            shown = key if equals or "token" not in text else "***"
            raise SettingError("--set", shown, "flag", "is not KEY=VALUE", "Write it as --set nats.port=4333")
        flags[key.strip()] = value
    return flags


def _file(config: Path | None) -> File | None:
    path = config or DEFAULT_FILE
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
        if len(data) > FILE_MAX_BYTES:
            raise _unreadable(path, f"it is larger than {FILE_MAX_BYTES >> 20} MiB")
        return File(str(path), data.decode())
    except FileNotFoundError:
        if config is None:
            return None
        raise _unreadable(path, "there is no such file") from None
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not text in UTF-8") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise _unreadable(path, f"{reason[:1].lower()}{reason[1:]}") from None


def _unreadable(path: Path, reason: str) -> OperatorError:
    return OperatorError(
        f"the settings file {path} cannot be read: {reason}",
        "Give a readable file with -c FILE, or leave -c out for the defaults",
    )
