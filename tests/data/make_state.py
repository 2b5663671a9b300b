"""Make the state directory of a network, for tests that later releases must pass: ``make_state.py TREE NAME``.

TREE is a checkout of the release whose state it is to be, such as ``git worktree add /tmp/old COMMIT``. The network
runs from there, with the interpreter that runs this, is filled, and is stopped in order. What comes of it are two files
beside this one: ``NAME.tar.xz``, the state directory, and ``NAME.json``, what must be found in it. Nothing expires.

Where pyspark is installed the state has a dataset, a feed and a channel too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BROKERS = [{"id": "north-1", "cluster": "north"}, {"id": "south-1", "cluster": "south"}]
YEARS_S = 315_360_000  # as long as settings allow
FOREVER_S = 0xFFFFFFFF
SCRIPT = """
CREATE DATASET Reports (kind STRING NOT NULL, level INT NOT NULL);
CREATE FEED Wire INTO Reports FROM TOPIC 'reports';
CREATE CHANNEL Alarms(kind STRING) CONTINUOUS AS SELECT r.level FROM NEW Reports r WHERE r.kind = :kind;
"""
SETTINGS = {
    "brokers": json.dumps(BROKERS),
    "messages.keep_s": YEARS_S,
    "messages.keep_bytes": 64 << 20,
    "coordinator.keep_s": YEARS_S,
    "coordinator.snapshot_every": 100,
    "pipeline.results_keep_s": YEARS_S,
    "spark.master": "local[2]",
    "spark.heap": "1g",
    "spark.ui_port": -1,
    "log.level": "error",
}
LEFT_OUT = ("lock", "logs", "spark", "chaos")  # of the state directory: nothing that lasts


async def fill(ready: dict[str, Any], state: Path, spark: bool) -> dict[str, Any]:
    """Everything that a network keeps, and what is then to be found."""
    from tocsin.client import AsyncClient

    at = {each["id"]: f"mqtt://{each['host']}:{each['port']}" for each in ready["brokers"]}

    def client(broker: str, name: str, **options: Any) -> AsyncClient:
        return AsyncClient(at[broker], client_id=name, session_expiry_s=FOREVER_S, **options)

    for broker, name, topics, qos in (
        ("north-1", "worker", "jobs/#", 1),
        ("south-1", "clerk", "orders/#", 2),
        ("north-1", "crew-1", "$share/crew/tasks/#", 1),
        ("south-1", "crew-2", "$share/crew/tasks/#", 1),
    ):
        async with client(broker, name) as each:
            await each.subscribe(topics, qos=qos)
    async with client("north-1", "asker") as each:
        await each.query('Room = "410"', qos=1)
    if spark:
        sql(state, SCRIPT)
        async with client("south-1", "watcher") as each:
            await each.channel("Alarms", "flood")

    async with client("south-1", "publisher") as each:
        for number in range(10):
            await each.publish(f"jobs/{number}", str(number), qos=1)
            await each.publish("orders/all", str(number), qos=2)
            await each.publish("tasks/all", str(number), qos=1)
        await each.publish("jobs/now", "critical", qos=1, priority=9)
        await each.publish("state/valve", "open", qos=1, retain=True, content_type="text/plain")
        await each.publish("state/door", "shut", qos=0, retain=True)
        await each.flush()
        lamp = each.stream("building/410/lamp", qos=1, permanent=True, Room="410", floor=4)
        for number in range(3):
            await lamp.publish(str(number))
        await each.stream("building/411/lamp", qos=1, permanent=True, Room="411").publish("x")
        if spark:
            await each.publish("reports", {"kind": "flood", "level": 7}, qos=1)
            while not sql(state, "SELECT level FROM Reports"):
                await asyncio.sleep(0.5)
            await asyncio.sleep(5)  # for the channel to have been told
        # More commands than there are between two snapshots.
        for number in range(120):
            await each.stream(f"rooms/{number}", permanent=True, number=number).describe()

    async with client("north-1", "worker") as each:  # the first three, read and acknowledged
        jobs = each.subscribe("jobs/#", qos=1)
        for _ in range(4):
            await jobs.get(30)
    return {
        "sessions": {
            "worker": {"broker": "south-1", "least": ["3", "4", "5", "6", "7", "8", "9"]},
            "clerk": {"broker": "north-1", "exactly": [str(number) for number in range(10)]},
            "asker": {"broker": "south-1", "exactly": ["0", "1", "2"]},
        },
        "group": {"members": ["crew-1", "crew-2"], "messages": [str(number) for number in range(10)]},
        "retained": {"state/valve": "open", "state/door": "shut"},
        "streams": {"building/410/lamp": {"Room": "410", "floor": 4}},
        "described": 120,
        "channel": {"session": "watcher", "level": 7} if spark else None,
    }


def sql(state: Path, text: str) -> list[Any]:
    command = [sys.executable, "-m", "tocsin", "sql", "-o", "json", "--wait", "120", "--state", str(state)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(tree: Path, name: str) -> None:
    sys.path.insert(0, str(tree / "src"))
    os.environ["PYTHONPATH"] = str(tree / "src")
    spark = find_spec("pyspark") is not None
    with tempfile.TemporaryDirectory() as made:
        state = Path(made) / "state"
        command = [sys.executable, "-m", "tocsin", "up", "--state", str(state), "--auto-ports"]
        settings = {**SETTINGS, "pipeline.enabled": "always" if spark else "never"}
        command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            found = asyncio.run(fill(json.loads(process.stdout.readline()), state, spark))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        here = Path(__file__).parent
        with tarfile.open(here / f"{name}.tar.xz", "w:xz") as archive:
            for path in sorted(state.iterdir()):
                if path.name not in LEFT_OUT:
                    archive.add(path, path.name)
        (here / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
