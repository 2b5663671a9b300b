"""A member whose session ends with each connection."""

from __future__ import annotations

from tocsin.sim.scenarios.durable.clients import Subscriber
from tocsin.sim.scenarios.durable.wire import Connect, Packet


class Visitor(Subscriber):
    """It remembers nothing, and nothing is remembered of it. In the end it stays away."""

    def _on_timer(self, name: str, now_us: int) -> None:
        if name != "connect" or now_us < self._restless_us:
            super()._on_timer(name, now_us)
        if name == "ping" and now_us >= self._restless_us:
            self._break()

    def _send(self, packet: Packet, cause: str = "") -> None:
        super()._send(Connect(lasting=False) if isinstance(packet, Connect) else packet, cause)

    def _resume(self) -> None:
        self._known = False
        self._held.clear()
        super()._resume()
