"""Run the Eclipse Paho interoperability suite against a broker of ours: ``python -m tests.interop.paho SUITE``.

SUITE is a checkout of paho.mqtt.testing. Each of its tests runs in a process of its own with a time-out, because one of
them hangs on every broker: its client goes on reading after the end of a connection.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

FILES = {"MQTT 3.1.1": "client_test.py", "MQTT 5": "client_test5.py"}
HANGS_EVERYWHERE = "test_flow_control2"
TEST_DEADLINE_S = 120
UP_DEADLINE_S = 60
BROKER = '[{"id": "solo", "cluster": "solo", "role": "edge", "port": 0}]'
# One test wants a topic that nobody may subscribe to.
RULES = """
[[rules]]
deny = "subscribe"
topics = ["test/nosubscribe"]

[[rules]]
allow = "both"
topics = ["#", "$SYS/#"]
"""
# Its scripts parse options that unittest then does not know; so unittest is told what to run.
ONE = """
import runpy, sys, unittest
file, test, *options = sys.argv[1:]
main = unittest.main
unittest.main = lambda: main(module="__main__", argv=[file, test])
sys.argv = [file, *options]
sys.path.insert(0, ".")
runpy.run_path(file, run_name="__main__")
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.paho", description=__doc__)
    parser.add_argument("suite", type=Path, help="a checkout of paho.mqtt.testing")
    parser.add_argument("--at", metavar="HOST:PORT", help="a broker that runs already, ours or another")
    parser.add_argument("--only", default="", help="run only tests whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="show what a failing test printed")
    chosen = parser.parse_args(argv)
    directory = chosen.suite / "interoperability"
    if not (directory / "client_test5.py").is_file():
        parser.error(
            f"{chosen.suite} is no checkout of paho.mqtt.testing: it has no interoperability/client_test5.py"
        )
    if chosen.at:
        host, _, port = chosen.at.rpartition(":")
        return run_all(directory, host, int(port), chosen.only, chosen.verbose)
    with tempfile.TemporaryDirectory() as temporary:
        rules = Path(temporary) / "rules.toml"
        rules.write_text(RULES)
        wanted = {
            "brokers": BROKER,
            "access.rules": str(rules),
            "limits.keep_alive_max_s": "60",  # one test wants to be told so
            "log.level": "error",
            "pipeline.enabled": "never",
        }
        settings = [part for key, value in wanted.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "tocsin", "up", "--ephemeral", "--auto-ports", *settings]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
            try:
                assert up.stdout is not None
                broker = json.loads(up.stdout.readline())["brokers"][0]
                return run_all(directory, broker["host"], broker["port"], chosen.only, chosen.verbose)
            finally:
                up.send_signal(signal.SIGTERM)
                up.wait(UP_DEADLINE_S)


def run_all(directory: Path, host: str, port: int, only: str, verbose: bool) -> int:
    wrong = 0
    for version, file in FILES.items():
        names = re.findall(r"def (test\w+)\(self", (directory / file).read_text())
        passed = 0
        chosen = [name for name in names if only in name]
        for name in chosen:
            outcome, output = run_one(directory, file, name, host, port)
            passed += outcome == "ok"
            wrong += outcome != "ok" and name != HANGS_EVERYWHERE
            print(f"{version:10}  {name:34} {outcome}", flush=True)
            if verbose and outcome != "ok":
                print(output)
        print(f"{version:10}  {passed} of {len(chosen)} passed", flush=True)
    return 1 if wrong else 0


def run_one(directory: Path, file: str, name: str, host: str, port: int) -> tuple[str, str]:
    command = [sys.executable, "-c", ONE, file, f"Test.{name}", "-p", str(port), f"--hostname={host}"]
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=TEST_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "hangs", ""
    ran = re.search(r"^Ran 1 test", done.stderr, re.MULTILINE) is not None
    return ("ok" if done.returncode == 0 and ran else "fails"), done.stdout[-3000:] + done.stderr[-3000:]


if __name__ == "__main__":
    sys.exit(main())
