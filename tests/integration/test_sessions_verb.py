"""``tocsin sessions``: an operator lists stored sessions and removes one, also one that nobody can read."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from mqtt5 import ConnAckPacket, ConnectPacket, QoS, TopicFilter

from tests.integration.running import DEADLINE_S, READY_DEADLINE_S, operator_store, up
from tests.integration.test_elsewhere import address
from tests.unit.broker.harness import Peer
from tocsin.core.delivery.stored_session import session_key
from tocsin.ports import TableSpec
from tocsin.wire.mqtt.connect import V5

SET = ("--set", "brokers=" + json.dumps([{"id": "north-1", "cluster": "north"}]))
LASTING = 3_600


def sessions(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tocsin", "sessions", *words, "--state", str(state)]
    return subprocess.run(command, capture_output=True, text=True, timeout=READY_DEADLINE_S)


def listed(state: Path, *words: str) -> dict[str, Any]:
    done = sessions(state, "list", "--json", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {each["client"] or each["key"]: each for each in found["largest"]}


async def come(network: dict[str, Any], client_id: str, *, clean: bool = False) -> tuple[Peer, ConnAckPacket]:
    peer = Peer(*await asyncio.open_connection(*address(network, "north-1")), V5)
    peer.send(ConnectPacket(client_id, clean_start=clean, session_expiry_interval=LASTING))
    return peer, await peer.first(ConnAckPacket)


async def test_an_operator_lists_sessions_and_removes_one_that_is_damaged(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(*SET, state=state, level="error") as network:
        here, _ = await come(network, "here", clean=True)
        await here.subscribe(TopicFilter("a/#", max_qos=QoS.AT_LEAST_ONCE))
        away, _ = await come(network, "away", clean=True)
        away.close()
        store = await operator_store(network, DEADLINE_S)
        table = await store.table(TableSpec(f"{network['network']}-sessions"))
        await table.put(session_key("broken"), b"\x01nobody can read this")
        await store.close()
        async with asyncio.timeout(DEADLINE_S):
            while (found := await asyncio.to_thread(listed, state)).get("away", {}).get("broker") != "":
                await asyncio.sleep(0.1)
        assert (found["here"]["broker"], found["here"]["subscriptions"]) == ("north-1", 1)
        assert list(await asyncio.to_thread(listed, state, "--damaged")) == [session_key("broken")]

        refused, answer = await come(network, "broken")
        refused.close()
        assert int(answer.reason_code) >= 0x80, "the damaged session is not replaced"
        done = await asyncio.to_thread(sessions, state, "remove", "here", "--yes")
        assert done.returncode == 2 and "north-1 serves 'here'" in done.stderr
        for words in (("away",), ("--key", session_key("broken"))):
            done = await asyncio.to_thread(sessions, state, "remove", *words, "--yes")
            assert done.returncode == 0, done.stderr
        assert list(await asyncio.to_thread(listed, state)) == ["here"]
        whole, answer = await come(network, "broken")
        whole.close()
        assert int(answer.reason_code) == 0 and not answer.session_present
        here.close()
    lines = [json.loads(line) for line in (state / "audit" / "audit.log").read_text().splitlines()]
    assert [(each["action"], each["outcome"]) for each in lines] == [
        ("remove session", "failed"),
        ("remove session", "done"),
        ("remove session", "done"),
    ]
