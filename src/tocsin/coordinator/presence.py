"""Asks brokers whose links were closed whether they are there, for the leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from tocsin.core.coordination.leader.broker_watch import AskPresence, Presence
from tocsin.core.machine import Event
from tocsin.errors import NoResponder, TocsinError
from tocsin.model.network import Address, broker_address
from tocsin.ports import Bus
from tocsin.runtime.machines.driver import bus_subject
from tocsin.runtime.machines.tasks import Failed, Tasks
from tocsin.wire.internal.control import encode_envelope

ANSWER_S: Final = (
    0.3  # to learn that there is nobody takes a round trip; whoever is there answers with a beat
)


class PresenceDesk:
    """Asks one broker after the other, each as a request on the subject on which it hears the leader."""

    def __init__(
        self, bus: Bus, address: Address, network: str, post: Callable[[Event], None], failed: Failed
    ) -> None:
        self._bus = bus
        self._address = address
        self._network = network
        self._post = post
        self._tasks = Tasks("asking brokers for a sign of life", failed)
        self._log = structlog.get_logger()

    def ask(self, effect: AskPresence) -> None:
        self._tasks.spawn(self._ask(effect))

    async def close(self) -> None:
        await self._tasks.wait_closed()

    async def _ask(self, effect: AskPresence) -> None:
        subject = bus_subject(self._network, broker_address(effect.broker))
        question = encode_envelope(self._address, effect.cause, effect.message)
        absent = False
        try:
            await self._bus.request(subject, question, deadline_s=ANSWER_S)
        except NoResponder:
            absent = True
        except TocsinError as error:
            self._log.debug("a broker was asked for a sign of life", broker=effect.broker, problem=str(error))
        self._post(Presence(broker=effect.broker, absent=absent, cause=effect.cause))
