"""Defaults < file < environment < flags, into one ``Settings`` and a note of where each key came from."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tocsin.config import rules
from tocsin.config.bridges import BRIDGES_MAX
from tocsin.config.catalogue import (
    NOT_SETTINGS,
    PREFIX,
    SECRET_KEYS,
    SECTIONS,
    SETTINGS,
    TABLES,
    Setting,
)
from tocsin.config.recovery import CRITERIA_MAX
from tocsin.config.schema import BROKERS_MAX, Settings
from tocsin.errors import SettingError

DEFAULT = "default"
FLAG = "flag"
MASK = "***"
# Types that text from the environment or a flag has to spell as JSON, with an example of each.
AS_JSON = {
    "brokers": 'an array such as [{"id": "north-1", "cluster": "north", "port": 1883}]',
    "bridges": 'an array such as [{"name": "hall-1", "broker": "north-1"}]',
    "spark.conf": 'an object such as {"spark.executor.memory": "4g"}',
    "scoring.criteria": 'an array such as [{"name": "link", "command": ["/usr/local/bin/link-quality"]}]',
}
# Settings that are lists of tables: the word for one, the most there may be, the default.
LISTED = {
    "brokers": ("broker", BROKERS_MAX, "the default brokers"),
    "bridges": ("bridge", BRIDGES_MAX, "none"),
    "scoring.criteria": ("criterion", CRITERIA_MAX, "none"),
}


class File(msgspec.Struct, frozen=True):
    """A settings file as it was read."""

    path: str
    text: str


class Loaded(msgspec.Struct, frozen=True):
    """Settings, and of each dotted key the origin: ``default``, a path, an environment variable or ``flag``."""

    settings: Settings
    origins: Mapping[str, str]


class _Given(msgspec.Struct, frozen=True):
    key: str
    value: Any
    source: str


def load(
    *,
    file: File | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """Read settings; raises ``SettingError`` at the first value that cannot be used.

    ``flags`` maps dotted keys to values. Text is understood as in the environment: lists of texts are separated
    by commas; ``brokers``, ``bridges`` and ``scoring.criteria`` are JSON arrays, ``spark.conf`` is a JSON object.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, DEFAULT)
    givens = [
        *(_from_file(file) if file else ()),
        *_from_environment(environment or {}),
        *(_Given(key, value, FLAG) for key, value in (flags or {}).items()),
    ]
    for given in givens:
        setting = _known(given.key, given, SETTINGS)
        values[given.key] = _converted(setting, given)
        origins[given.key] = given.source
    settings = msgspec.convert(_nested(values), Settings)
    rules.check(settings, origins)
    return Loaded(settings, origins)


# ── sources ─────────────────────────────────────────────────────────────────────────────────────────────────


def _from_file(file: File) -> Iterator[_Given]:
    try:
        document = tomllib.loads(file.text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(file, str(error)) from None
    for name, value in document.items():
        if name not in SECTIONS:
            yield _Given(name, value, file.path)
        elif not isinstance(value, dict):
            raise SettingError(
                name, value, file.path, "is a section, not a value", f"Write it as [{name}] with keys beneath"
            )
        else:
            yield from (_Given(f"{name}.{key}", inner, file.path) for key, inner in value.items())


def _not_toml(file: File, message: str) -> SettingError:
    """``message`` ends in "(at line 3, column 7)" or "(at end of document)"."""
    lines = file.text.splitlines() or [""]
    problem, _, where = message.rpartition(" (at ")
    where = where.rstrip(")")
    found = re.match(r"line (\d+)", where)
    line = lines[min(int(found[1]), len(lines)) - 1] if found else lines[-1]
    shown = MASK if "token" in line or "password" in line else line.strip()[:80]
    return SettingError(
        where,
        shown,
        file.path,
        f"not TOML: {problem[:1].lower()}{problem[1:]}",
        "Correct that line of the file",
    )


def _from_environment(environment: Mapping[str, str]) -> Iterator[_Given]:
    for variable, text in sorted(environment.items()):
        if variable.startswith(PREFIX) and variable not in NOT_SETTINGS:
            key = variable.removeprefix(PREFIX).lower().replace("__", ".")
            yield _Given(key, text, f"environment variable {variable}")


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────


def _known(key: str, given: _Given, known: Mapping[str, Setting], where: str = "") -> Setting:
    if (setting := known.get(key)) is not None:
        return setting
    if not where and key in SECTIONS:
        remedy = f"Set one of its keys: {_keys_of(key)}"
        raise SettingError(key, given.value, given.source, "is a section, not a value", remedy)
    remedy = _nearest(key, known, where)
    secret = any(name in remedy for name in SECRET_KEYS)  # a misspelt key may still carry the secret
    value = MASK if secret else _shown(given.key, given.value)
    raise SettingError(where + key, value, given.source, "there is no such setting", remedy)


def _keys_of(section: str) -> str:
    return ", ".join(key for key in SETTINGS if key.startswith(f"{section}."))


def _nearest(key: str, known: Iterable[str], where: str) -> str:
    candidates = [*known, *(() if where else SECTIONS)]
    match = difflib.get_close_matches(key, candidates, n=1)
    if not match:  # the right key in no section, or in the wrong one
        match = [candidate for candidate in candidates if candidate.split(".")[-1] == key.split(".")[-1]][:1]
    if match:
        return f"Did you mean {where}{match[0]}"
    return "See all settings with `tocsin config show`"


def _shown(key: str, value: object) -> object:
    return MASK if key in SECRET_KEYS or "token" in key or "password" in key else value


def _converted(setting: Setting, given: _Given) -> Any:
    value = _parsed(setting, given)
    if setting.key in TABLES:
        return _tables(setting, given, value)
    return _leaf(setting, given, setting.key, value)


def _parsed(setting: Setting, given: _Given) -> Any:
    """Text for a list, as a list; everything else as it is."""
    if not isinstance(given.value, str):
        return given.value
    if (example := AS_JSON.get(setting.key)) is not None:
        try:
            return msgspec.json.decode(given.value)
        except msgspec.DecodeError as error:
            raise SettingError(
                setting.key, given.value, given.source, f"not JSON: {error}", f"Give {example}"
            ) from None
    if isinstance(setting.default, tuple) and not _from_a_file(given):
        return [part.strip() for part in given.value.split(",") if part.strip()]
    return given.value


def _from_a_file(given: _Given) -> bool:
    return given.source != FLAG and not given.source.startswith("environment variable ")


def _leaf(setting: Setting, given: _Given, key: str, value: Any) -> Any:
    """One value of the right type and in bounds. A file has types; text from elsewhere may be a number."""
    problem = f"must be {setting.accepts}"
    try:
        truth = isinstance(value, bool) and not isinstance(setting.default, bool)
        if truth or (isinstance(value, float) and value != value):
            raise msgspec.ValidationError  # a truth value is no number, and some are not a number
        return msgspec.convert(value, setting.type, strict=_from_a_file(given))
    except msgspec.ValidationError:
        required = setting.default is msgspec.NODEFAULT
        remedy = "Correct it" if required else f"Correct it, or leave it out for {setting.fallback}"
        raise SettingError(key, _shown(setting.key, value), given.source, problem, remedy) from None


def _tables(setting: Setting, given: _Given, value: Any) -> list[dict[str, Any]]:
    """A list of tables, each field of each held to its own type and bounds."""
    word, most, default = LISTED[setting.key]
    fields = TABLES[setting.key]
    shape = Annotated[list[dict[str, Any]], Meta(max_length=most)]
    _leaf(msgspec.structs.replace(setting, default=default, type=shape), given, setting.key, value)
    tables: list[dict[str, Any]] = []
    for index, table in enumerate(value):
        where = f"{setting.key}[{index}]."
        read: dict[str, Any] = {}
        for name, inner in table.items():
            field = _known(name, _Given(name, inner, given.source), fields, where)
            read[name] = _leaf(field, given, where + name, inner)
        for name, field in fields.items():
            if field.default is msgspec.NODEFAULT and name not in read:
                raise SettingError(
                    where + name, None, given.source, f"every {word} needs one", f"Add {name} to the table"
                )
        tables.append(read)
    return tables


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    return nested
