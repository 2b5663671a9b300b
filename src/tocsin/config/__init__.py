"""Settings: defaults in code < ``tocsin.toml`` < environment < flags, read once into frozen values.

A section of the settings is a module, with the section's name; ``catalogue``, ``loading``, ``rules`` and ``reference``
serve all.

``load`` says for each key where its value came from, and refuses every bad value with a reason (``SettingError``).
Nothing here reads files, the environment or a clock: the command line hands in what it read.
"""

from tocsin.config.balance import Balance
from tocsin.config.bridges import Bridge
from tocsin.config.broker import DEFAULT_BROKERS, LISTENERS, Broker, Role
from tocsin.config.budgets import Budgets
from tocsin.config.catalogue import PREFIX, SECRET_KEYS, SETTINGS, Setting, value_of
from tocsin.config.chaos import Chaos
from tocsin.config.coordinator import Coordinator
from tocsin.config.deadline import Deadline
from tocsin.config.door import Door
from tocsin.config.feeds import Feeds
from tocsin.config.loading import File, Loaded, load
from tocsin.config.membership import Membership
from tocsin.config.pipeline import Pipeline, Spark
from tocsin.config.recovery import Criterion, Recovery, Scoring
from tocsin.config.replication import Replication
from tocsin.config.schema import (
    Access,
    ClientName,
    Limits,
    Log,
    Messages,
    Nats,
    Settings,
    Tls,
    from_json,
    to_json,
)
from tocsin.config.section import Section
from tocsin.config.shares import Shares

__all__ = [
    "DEFAULT_BROKERS",
    "LISTENERS",
    "PREFIX",
    "SECRET_KEYS",
    "SETTINGS",
    "Access",
    "Balance",
    "Bridge",
    "Broker",
    "Budgets",
    "Chaos",
    "ClientName",
    "Coordinator",
    "Criterion",
    "Deadline",
    "Door",
    "Feeds",
    "File",
    "Limits",
    "Loaded",
    "Log",
    "Membership",
    "Messages",
    "Nats",
    "Pipeline",
    "Recovery",
    "Replication",
    "Role",
    "Scoring",
    "Section",
    "Setting",
    "Settings",
    "Shares",
    "Spark",
    "Tls",
    "from_json",
    "load",
    "to_json",
    "value_of",
]
