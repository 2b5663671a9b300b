"""The clients that only groups have: members whose session ends with each connection, and publishers that take time."""

from __future__ import annotations

from tocsin.sim.process.packets import Connect, Packet, Suback
from tocsin.sim.process.restless import AlarmingPublisher, Subscriber

# Up to a second between messages: so that there are some for as long as there is trouble.
PATIENCE_MASK = 0xFFFFF
VISIT_MASK = (
    0xFFFFFF  # up to seventeen seconds: longer than a broker's incarnation lasts that is not refreshed
)
AWAY_FACTOR = 4  # visitors are away for so much longer than others: so that a group of them ends often


class PatientPublisher(AlarmingPublisher):
    """It publishes for longer than others do."""

    def _think(self) -> None:
        self._timer("publish", self._draw(PATIENCE_MASK))


class Visitor(Subscriber):
    """It remembers nothing, and nothing is remembered of it. It takes its time, and in the end it stays away."""

    def _stay_us(self) -> int:
        return self._draw(VISIT_MASK) if self._draw(1) else super()._stay_us()

    def _timer(self, name: str, delay_us: int) -> None:
        super()._timer(name, delay_us * AWAY_FACTOR if name == "connect" else delay_us)

    def _on_timer(self, name: str, now_us: int) -> None:
        if name != "connect" or now_us < self._restless_us:
            super()._on_timer(name, now_us)
        if name == "ping" and now_us >= self._restless_us:
            self._break()

    def _send(self, packet: Packet, cause: str = "") -> None:
        super()._send(Connect(lasting=False) if isinstance(packet, Connect) else packet, cause)

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Suback):
            self._say("visits", topic_filter=packet.topic_filter, connection=self._connections)
        super()._take(packet)

    def _resume(self) -> None:
        self._known = False
        self._held.clear()
        super()._resume()
