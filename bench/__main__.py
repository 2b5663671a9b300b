"""Run measurements: ``python -m bench [NAME…] [--quick]``. Results are printed and kept in bench/results/."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

BENCHES = {
    "assignment": "plans of backups beside bounds that no plan can beat, and how their time grows",
    "balance": "what moving clients from full to empty brokers changes: spread, routes, who notices",
    "broker": "deliveries per CPU second, latency and memory of a broker, beside mosquitto and NATS",
    "channels": "executions of channels on Spark, beside DuckDB and one query each; a network, end to end",
    "connections": "what a new connection costs a broker, clean and with a session, beside mosquitto",
    "coordinator": "a change on its way to another broker; commands applied; snapshots of 100 000 streams",
    "dds": "what the bridge to DDS adds to a sample, its rate, a new endpoint, beside zenoh's bridge",
    "detection": "how soon a dead broker is missed, how often a living one, beside fixed time-outs; heartbeat bytes",
    "growth": "a tier that grows under load and shrinks without it: its members' loads, and what is lost",
    "hub": "messages that one routing broker passes on, to one LAN and to ten, beside NATS with leaf nodes",
    "leader": "the coordinator's processor time while a tenth of a thousand brokers fails, beside one of them",
    "locality": "a durable message at brokers that do not want it; how soon a new filter is read",
    "moves": "how often clients move when a standby takes their lost broker's place",
    "narrow": "a link that is offered three times what it can carry, beside a leaf node of NATS",
    "phone": "mosquitto's subscriber, MQTT 3.1.1 and one address, while its brokers are killed and frozen",
    "query": "a change against up to a million standing queries, a new query against as many streams",
    "replication": "bytes and CPU of a change, a position and a resync, from a broker to its two backups",
    "sim": "events a second of the simulator, beside a bare event heap",
    "spread": "durable messages a second of brokers with disjoint interests, beside the store's limit",
    "storm": "the clients of a killed broker come to its backup at once: until all are served, and who notices",
    "takeover": "until a backup serves a lost broker's clients, by their subscriptions: local beside remote",
    "tiers": "the leader's work when a routing broker leaves, beside the way before; bytes that brokers are told",
    "told": "from a frozen broker to service elsewhere, told of its loss and not; what a watcher costs",
    "store": "appends, reads and watches on JetStream, one and three servers, beside plain nats-py",
}


def main(argv: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else list(argv)
    if given[:1] == ["draw"]:
        return int(importlib.import_module("bench.draw").main(given[1:]))
    names = "\n".join(f"  {name:11} {what}" for name, what in BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Tocsin; every figure stands beside a peer's, measured in the same run.",
        epilog=f"measurements:\n{names}\n\n`python -m bench draw NAME` draws what a measurement kept.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones; all if none is named")
    parser.add_argument("--quick", action="store_true", help="smaller and rougher, in under a minute each")
    chosen = parser.parse_args(given)
    unknown = [name for name in chosen.names if name not in BENCHES]
    if unknown:
        parser.error(f"there is no measurement {unknown[0]!r}; name one of {', '.join(BENCHES)}")
    worst = 0
    for name in chosen.names or BENCHES:
        print(f"── {name}: {BENCHES[name]} ──", flush=True)
        code = importlib.import_module(f"bench.{name}").main(["--quick"] if chosen.quick else [])
        worst = max(worst, code)
    return worst


if __name__ == "__main__":
    sys.exit(main())
