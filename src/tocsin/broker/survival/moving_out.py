"""The shell of ``core.survival.moving_out``: clients are let go as the leader says, and a drained broker takes none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import structlog

from tocsin.core.session.signals import Moving
from tocsin.core.survival.moving_out import Mover, MovingOut
from tocsin.runtime.machines.clock import now_us
from tocsin.wire.internal.control import Moves

if TYPE_CHECKING:
    from tocsin.broker.entrance.listener import Listener

REASON = "this broker is being emptied, or too full: another one serves you from now on"

SENT_AWAY = "a client is sent to another broker"


class Removal:
    """Moves clients of one broker to others."""

    choosing: type[MovingOut] = MovingOut  # so that a variant can be tried

    def __init__(self, broker: str, listener: Listener, rest_s: int) -> None:
        self._broker = broker
        self._listener = listener
        self._choice = self.choosing(rest_s * 1_000_000)
        self.drains = False  # the broker is being emptied
        self.moved = 0  # clients that were told to go elsewhere
        self._log = structlog.get_logger()

    def told(self, moves: Moves | None) -> bool:
        """The leader wants clients elsewhere; None: no more. Whether the broker takes new clients no more, or again."""
        drains = moves is not None and moves.drain
        changed = drains != self.drains
        if changed:
            self.drains = drains
            self._listener.drain(drains)
            words = "this broker is being emptied" if drains else "this broker takes clients again"
            self._log.warning(words, broker=self._broker, clients=self._listener.clients)
        if moves is not None:
            self._move(moves)
        else:
            self._choice.ended()
        return changed

    def _move(self, moves: Moves) -> None:
        for each in self._choice.choose(moves, self._movers(), now_us()):
            connection = self._listener.register.present.get(each.client)
            if connection is not None:
                self.moved += 1
                cause = f"{self._broker}:move {each.client}"
                reference = each.server_reference
                self._log.info(
                    SENT_AWAY, subscriber=each.client, to=reference, drain=moves.drain, cause=cause
                )
                moving = Moving(
                    server_reference=reference,
                    reason=REASON,
                    compulsory=moves.others,
                    lasting=True,
                    cause=cause,
                )
                connection.post(moving)

    def _movers(self) -> Iterator[Mover]:
        register, follows = self._listener.register, self._listener.follows
        for client, connection in register.present.items():
            delivery = connection.delivery
            if delivery.begun:
                asks = tuple(delivery.subscriptions)
                yield Mover(client, register.scheme(connection), asks, follows(client), connection.came_us)
