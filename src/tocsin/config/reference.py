"""``docs/reference/settings.md``, written from the catalogue so that it cannot disagree with the code."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tocsin.config.catalogue import BRIDGE_FIELDS, BROKER_FIELDS, CRITERION_FIELDS, PREFIX, SETTINGS, Setting

HEAD = f"""# Settings

*This page is made by `tocsin config reference` from the code; change the code, not the page.*

Every setting has a default. It is replaced by the settings file, that by the environment, that by flags:

| source | example for `nats.port` |
| --- | --- |
| `tocsin.toml`, or the file named by `-c` | `[nats]` and beneath it `port = 4333` |
| environment: `{PREFIX}`, sections joined by two underscores | `{PREFIX}NATS__PORT=4333` |
| flag | `--set nats.port=4333` |

Lists of texts are separated by commas in the environment and in flags; `spark.conf` is a JSON object there, lists of
tables are JSON arrays. A value that cannot be used, or a key that does not exist, is refused in one sentence (exit
code 2) before anything starts.
`tocsin config show` prints the settings in effect and where each came from.
"""

BROKERS = """## Brokers

Each broker is a `[[brokers]]` table; from the environment or a flag, `brokers` is a JSON array of objects. A list
replaces the default list as a whole. A cluster needs an edge broker, unless all its brokers are there to carry messages
between others (`routing`). Clusters exchange messages over routing brokers: their own, or those of the largest tier.

```toml
[[brokers]]
id = "north-1"
cluster = "north"
port = 1883

[[brokers]]
id = "north-hub"
cluster = "north"
role = "routing"
port = 1885
```
"""

BRIDGES = """## Bridges

Each is a `[[bridges]]` table: a [bridge to DDS](../how-to/bridge-dds.md) that `tocsin up` starts when its brokers are
ready, and starts again when it ends. A bridge on another machine is started by hand (`tocsin bridge dds`).

```toml
[[bridges]]
name = "hall-1"
broker = "north-1"
domain = 0
payload = "json"
```
"""

CRITERIA = """## Criteria of your own

Each is a `[[scoring.criteria]]` table: a command that every broker runs, and whose answer is part of the score of its
machine ([how](../how-to/backups.md)).

```toml
[[scoring.criteria]]
name = "link"
command = ["/usr/local/bin/link-quality", "--to", "10.0.0.1"]
weight = 2.0
```
"""


def markdown() -> str:
    """The whole page."""
    sections: dict[str, list[Setting]] = {}
    for setting in SETTINGS.values():
        sections.setdefault(setting.key.rpartition(".")[0], []).append(setting)
    parts = [HEAD]
    for section, settings in sections.items():
        parts.append(f"## `[{section}]`\n" if section else "## At the top of the file\n")
        parts.append(_table(settings))
    parts += [BROKERS, _table(BROKER_FIELDS.values()), BRIDGES, _table(BRIDGE_FIELDS.values())]
    parts += [CRITERIA, _table(CRITERION_FIELDS.values())]
    return "\n".join(parts)


def _table(settings: Iterable[Setting]) -> str:
    lines = ["| key | default | accepts | meaning |", "| --- | --- | --- | --- |"]
    for setting in settings:
        lines.append(f"| `{setting.key}` | {_default(setting)} | {setting.accepts} | {setting.description} |")
    return "\n".join(lines) + "\n"


def _default(setting: Setting) -> str:
    if setting.default is msgspec.NODEFAULT:
        return "required"
    if setting.key == "brokers":
        return "two clusters of three, see `tocsin config show`"
    if setting.default is None:
        return "by `scoring.configuration`"
    if setting.default in ("", (), {}):
        return "empty"
    return f"`{setting.fallback if isinstance(setting.default, bool) else setting.default}`"
