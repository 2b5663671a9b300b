"""Every setting with its key, default, bounds and description, read off the types in ``config.schema``.

This is the one source for what the loader accepts, what ``tocsin config show`` prints and what
``docs/reference/settings.md`` says.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from tocsin.config.bridges import Bridge
from tocsin.config.broker import Broker
from tocsin.config.pipeline import HEAP
from tocsin.config.recovery import Criterion
from tocsin.config.schema import Settings
from tocsin.config.section import NAME

PREFIX = "TOCSIN_"
SECRET_KEYS = frozenset({"nats.token", "feeds.password"})  # never printed
# Variables with our prefix that are no settings: a child's line to its parent, the server program to start, a test's
# wish, the password of `tocsin pub` and `tocsin sub`, and the broker for which an operator's criterion is asked.
NOT_SETTINGS = frozenset(
    {
        "TOCSIN_STATUS_FD",
        "TOCSIN_NATS_SERVER",
        "TOCSIN_KILL_AT",
        "TOCSIN_STOP_AT",
        "TOCSIN_PASSWORD",
        "TOCSIN_BROKER",
        "TOCSIN_CLUSTER",
    }
)

BY_CONFIGURATION = "what scoring.configuration says"  # the default of settings that it sets: they have no own


class Setting(msgspec.Struct, frozen=True):
    """One setting. ``accepts`` are the words for what it may be; ``type`` is what values are converted to."""

    key: str
    default: Any
    description: str
    accepts: str
    type: Any

    @property
    def fallback(self) -> str:
        """The value that it has if it is left out, as text."""
        if isinstance(self.default, bool):
            return str(self.default).lower()  # as files have it
        return BY_CONFIGURATION if self.default is None else repr(self.default)

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.key.upper().replace(".", "__")


def _words(kind: inspect.Type) -> str:
    match kind:
        case inspect.IntType(ge=low, le=high):
            return f"a whole number from {low} to {high}"
        case inspect.FloatType(ge=low, le=high):
            return f"a number from {low:g} to {high:g}"
        case inspect.UnionType(types=(inspect.FloatType() as number, inspect.NoneType())):
            return _words(number)
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values=values):
            return " or ".join(str(value) for value in values)
        case inspect.StrType(pattern=pattern) if pattern == HEAP:
            return "a whole number of megabytes or gigabytes, such as 512m or 2g"
        case inspect.StrType(pattern=pattern) if pattern == NAME:
            return "a name of lower-case letters, digits and inner hyphens, at most 63 characters"
        case inspect.StrType(max_length=int(length)):
            return f"a text of at most {length} characters"
        case inspect.StrType(min_length=int()):
            return "a text that is not empty"
        case inspect.StrType():
            return "a text"
        case inspect.VarTupleType(item_type=inspect.StructType(), max_length=length):
            return f"a list of at most {length} tables"
        case inspect.VarTupleType(min_length=int(least), max_length=length):
            return f"a list of {least} to {length} texts"
        case inspect.VarTupleType(max_length=length):
            return f"a list of at most {length} texts"
        case inspect.DictType(max_length=length):
            return f"a table of at most {length} texts"
    raise AssertionError(f"no words for {kind}")


def _walk(cls: type[msgspec.Struct], prefix: str) -> list[Setting]:
    found: list[Setting] = []
    described = inspect.type_info(cls)
    assert isinstance(described, inspect.StructType)
    types = {field.name: field.type for field in msgspec.structs.fields(cls)}
    for field in described.fields:
        key = f"{prefix}{field.name}"
        if isinstance(field.type, inspect.StructType):
            found += _walk(field.type.cls, f"{key}.")
            continue
        assert isinstance(field.type, inspect.Metadata), f"{key} has no description"
        words = (field.type.extra_json_schema or {})["description"]
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        found.append(Setting(key, default, words, _words(field.type.type), types[field.name]))
    return found


SETTINGS: dict[str, Setting] = {setting.key: setting for setting in _walk(Settings, "")}
BROKER_FIELDS: dict[str, Setting] = {setting.key: setting for setting in _walk(Broker, "")}
CRITERION_FIELDS: dict[str, Setting] = {setting.key: setting for setting in _walk(Criterion, "")}
BRIDGE_FIELDS: dict[str, Setting] = {setting.key: setting for setting in _walk(Bridge, "")}
TABLES: dict[str, dict[str, Setting]] = {
    "brokers": BROKER_FIELDS,
    "bridges": BRIDGE_FIELDS,
    "scoring.criteria": CRITERION_FIELDS,
}
SECTIONS: frozenset[str] = frozenset(key.split(".")[0] for key in SETTINGS if "." in key)


def value_of(settings: Settings, key: str) -> Any:
    """The value of one key."""
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value
