"""Wills and access rules, on whole brokers: nobody publishes a will on a topic that is denied to its client.

A client leaves its will while it may publish there. Then the rules change, its broker is lost, and its backups see to
the wills that they have a copy of.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.sim.scenes import SECOND, first_broken, settings, until
from tocsin.broker.survival.client_state import ClientState
from tocsin.client import AsyncClient, Message
from tocsin.config import Access
from tocsin.config.recovery import Recovery
from tocsin.core.machine import Say
from tocsin.errors import TocsinError
from tocsin.model.network import Address
from tocsin.sim.faults.kinds import Crash, Fault
from tocsin.sim.process.machine import Main, SimulatedProcess
from tocsin.sim.process.stage import Stage, server
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.runner import Broken
from tocsin.sim.world import World

SEEDS: Final = 3
EVERYWHERE: Final = """
[[rules]]
allow = "both"
topics = ["#"]
clients = ["emil", "fred", "watch"]

[[rules]]
allow = "publish"
topics = ["open/#"]
"""
OPEN_ONLY: Final = EVERYWHERE.replace('"emil", ', "")
# The broker of all wills is lost after the rules have changed.
LOST: Final[list[Fault]] = [Crash(at_us=14 * SECOND, for_us=20 * SECOND, node="north-1")]


class Rights(Invariant):
    """What is denied is never told; what is allowed is; and who asks for what is denied is refused."""

    name = "no will is published on a topic that is denied to its client"

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def attach(self, world: World) -> None:
        for text in ("told", "refused", "let in"):
            world.observers.on_say(text, self._look)

    def _look(self, who: Address, say: Say) -> None:
        about = str(say.facts["about"])
        if say.text != "refused" and about in ("secret/emil", "secret/gina"):
            self.broken(f"{who}: {say.text} {about}")
        self._seen.add(f"{say.text} {about}")

    def finish(self, world: World) -> None:
        missing = {"told open/fred", "refused secret/gina"} - self._seen
        if missing:
            self.broken(f"nobody says {sorted(missing)}")


def leaves_will(name: str, topic: str) -> Main:
    """A program that stays with its broker, whatever happens, and says whether it was let in."""

    async def main(process: SimulatedProcess) -> None:
        will = Message(topic, f"will of {name}".encode(), qos=1)
        await until(2)
        while True:
            client = AsyncClient(server("north-1"), client_id=name, redial=False, will=will, keep_alive_s=60)
            try:
                await client.connect()
            except TocsinError as error:
                if "may not publish to the topic of its will" in str(error):
                    process.do(Say(text="refused", facts={"about": topic}))
                    return
                await asyncio.sleep(0.5)
            else:
                process.do(Say(text="let in" if name == "gina" else "came", facts={"about": topic}))
                await asyncio.get_running_loop().create_future()

    return main


async def watch(process: SimulatedProcess) -> None:
    client = AsyncClient([server("south-1"), server("north-2")], client_id="watch", session_expiry_s=600)
    async with client:
        async for message in await client.subscribe("#", qos=1):
            process.do(Say(text="told", facts={"about": message.topic}))


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def tell(rules: Path) -> Broken | None:
    """What the story breaks, if anything."""
    access = Access(rules=str(rules), anonymous="always")

    def scene(stage: Stage) -> Invariant:
        rules.write_text(EVERYWHERE)  # brokers read it when they start
        stage.world.at(8 * SECOND, partial(_write, rules, OPEN_ONLY))
        for name, topic in (("emil", "secret/emil"), ("fred", "open/fred"), ("gina", "secret/gina")):
            stage.add_program(name, leaves_will(name, topic))
        stage.add_program("watch", watch)
        return Rights()

    return first_broken(scene, settings(access=access, recovery=Recovery(will_grace_s=1)), LOST, SEEDS)


def test_a_will_whose_topic_was_denied_since_is_not_published_by_backups(tmp_path: Path) -> None:
    assert tell(tmp_path / "rules.toml") is None


def test_the_checker_finds_a_will_published_without_a_rules_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientState, "allows", lambda self, will: True)
    broken = tell(tmp_path / "rules.toml")
    assert broken is not None and broken.words == "watch: told secret/emil"
