"""A machine among the others of one process: its timers and its requests to the store are its own.

As the pumps of the real shells do, a part hands events on one after the other: what is told while an event is being
carried out comes after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tocsin.core.machine import (
    Append,
    CancelTimer,
    DeleteKey,
    Effect,
    Event,
    FollowLog,
    GetKey,
    Listen,
    Machine,
    PutKey,
    ReadLog,
    Say,
    Send,
    SetTimer,
    StopListening,
    Stored,
    StoreFailed,
)

if TYPE_CHECKING:
    from tocsin.sim.scenarios.survival.broker import SurvivalBroker


class Part:
    """See the module's text. ``own`` carries out what is not the kernel's."""

    def __init__(
        self, broker: SurvivalBroker, name: str, machine: Machine, own: Callable[[Effect], None]
    ) -> None:
        self.name = name
        self._broker = broker
        self._machine = machine
        self._own = own
        self._events: deque[Event] = deque()
        self._busy = False

    def tell(self, event: Event) -> None:
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                for effect in self._machine.handle(self._events.popleft(), self._broker.now_us):
                    self._carry_out(effect)
        finally:
            self._busy = False

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send() | FollowLog() | Listen() | StopListening():
                self._broker.do(effect)
            case SetTimer(name=name, delay_us=delay_us):
                self._broker.set_timer(self, name, delay_us)
            case CancelTimer(name=name):
                self._broker.cancel_timer(self, name)
            case Append() | ReadLog() | GetKey() | PutKey() | DeleteKey():
                self._broker.ask(effect, self._answer(effect.request))
            case Say():
                self._broker.say(effect)
            case _:
                self._own(effect)

    def _answer(self, request: str) -> Callable[[Stored | StoreFailed], None]:
        return lambda event: self.tell(msgspec.structs.replace(event, request=request))
