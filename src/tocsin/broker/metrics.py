"""A broker's figures for Prometheus: what ``$SYS`` says, under the same names.

``clients/connected`` is ``tocsin_broker_clients_connected``; a figure that only grows ends in ``_total``. What ``$SYS``
says of each budget is a family with the label ``budget``. Texts (version, uptime in words, problems) are left out, but
for the broker's name, cluster and version, which are labels of ``tocsin_broker_info``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

from tocsin.broker.sys_topics import MOSQUITTOS_RETAINED
from tocsin.config import Broker
from tocsin.runtime import metrics

PREFIX: Final = "tocsin_broker"
BUDGET: Final = re.compile(r"budget/(\w+)/(used|limit|most|refused|waiting)")
BUDGET_HELP: Final = {
    "used": "Bytes that clients make the broker hold, by kind.",
    "limit": "The bound of these.",
    "most": "The most of these at once since the broker started.",
    "refused": "How often there was no room.",
    "waiting": "Callers that wait for room.",
}
# Figures that only grow while the broker lives; every other is a level.
COUNTERS: Final = frozenset(
    {
        "budget/clients-cut-short",
        "channels/cache/hits",
        "channels/cache/misses",
        "channels/results/read",
        "channels/results/sent",
        "clients/refused",
        "links/late",
        "messages/carried",
        "messages/durable",
        "messages/received",
        "messages/relayed",
        "messages/sent-around",
        "probes/answered",
        "probes/bytes/received",
        "probes/bytes/sent",
        "probes/failed",
        "probes/made",
        "publish/messages/dropped",
        "replication/bytes/sent",
        "replication/resyncs",
        "replication/waits/missed",
        "retained/refused",
        "sessions/let-go",
        "sessions/refused",
        "sessions/settled",
        "slots/failed-over",
        "slots/moved",
        "streams/refused",
    }
)

Figures = Callable[[], Mapping[str, str]]


def render(figures: Mapping[str, str]) -> str:
    """The figures of ``$SYS`` as text for a collector; nothing while there is no broker yet."""
    return "".join(_families(figures)) if figures else ""


def _families(figures: Mapping[str, str]) -> Iterator[str]:
    version = figures["version"].removeprefix("tocsin version ")
    labels = f'id="{figures["id"]}",cluster="{figures["cluster"]}",version="{version}"'
    yield from _family("info", "gauge", "The broker.", [(labels, "1")])
    yield from _family(
        "uptime_seconds", "gauge", "Since the broker started.", [("", figures["uptime"].partition(" ")[0])]
    )
    up, _, links = figures["links/up"].partition(" of ")
    yield from _family("links", "gauge", "Links to other brokers.", [("", links)])
    yield from _family("links_up", "gauge", "Links that work.", [("", up)])
    budgets: dict[str, list[tuple[str, str]]] = {}
    for topic, value in figures.items():
        if found := BUDGET.fullmatch(topic):
            budgets.setdefault(found[2], []).append((f'budget="{found[1]}"', value))
        elif value.isdecimal() and topic != MOSQUITTOS_RETAINED:
            name = re.sub("[/-]", "_", topic)
            counts = topic in COUNTERS
            yield from _family(
                f"{name}_total" if counts else name,
                "counter" if counts else "gauge",
                f"$SYS/broker/{topic}.",
                [("", value)],
            )
    for figure, rows in budgets.items():
        name, kind = f"budget_{figure}", "gauge"
        if figure == "refused":
            name, kind = f"{name}_total", "counter"
        elif figure != "waiting":
            name += "_bytes"
        yield from _family(name, kind, BUDGET_HELP[figure], rows)


def _family(name: str, kind: str, words: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    yield f"# HELP {PREFIX}_{name} {words}\n# TYPE {PREFIX}_{name} {kind}\n"
    for labels, value in rows:
        # Names and versions are letters, digits, dots and hyphens (``config.section.NAME``): nothing is to be escaped.
        shown = f"{{{labels}}}" if labels else ""
        yield f"{PREFIX}_{name}{shown} {value}\n"


def served(broker: Broker, figures: Figures) -> AbstractAsyncContextManager[str]:
    """Answer collectors while the context lasts; the address, empty if the broker's port for them is -1."""

    async def tell() -> str:
        return render(figures())

    return metrics.served(
        broker.metrics_host, broker.metrics_port, tell, whose=f"broker {broker.id}", setting="metrics_port"
    )
