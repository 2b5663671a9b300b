"""What is on its way to the network: samples, and what bridges say to each other.

Bounded in bytes: beyond, nothing is taken from readers, so that reliable writers wait. What the network refuses for now
is published again, TRIES_MAX times; without an answer there is no bound.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.bridge.dds.signals import Figures, Note, Pause, Publish, PublishFailed
from tocsin.bridge.limits import delay_us
from tocsin.core.machine import Effect, SetTimer
from tocsin.model.publication import Publication

OUT_MAX_BYTES: Final = 32 << 20
OVERHEAD_BYTES: Final = 400  # of a sample, beside its data
TRIES_MAX: Final = 10
SEND: Final = "send "  # a timer, and a token


class _Out(msgspec.Struct):
    publication: Publication
    entity: str
    tries: int = 0


class Outbox:
    """Publications that the network does not have yet, by token."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._waiting: dict[int, _Out] = {}
        self._bytes = 0
        self._paused = False
        self._token = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, publication: Publication, entity: str = "") -> Effect:
        """``entity``: the reader whose sample it is, if any."""
        self._token += 1
        self._waiting[self._token] = _Out(publication, entity)
        self._bytes += len(publication.payload) + OVERHEAD_BYTES
        return Publish(token=self._token, publication=publication, entity=entity)

    def pause(self) -> list[Effect]:
        """Whether readers have to wait, if that is new."""
        paused = self._bytes > (OUT_MAX_BYTES // 2 if self._paused else OUT_MAX_BYTES)
        if paused == self._paused:
            return []
        self._paused = paused
        return [Pause(paused=paused)]

    def published(self, token: int) -> list[Effect]:
        out = self._waiting.pop(token, None)
        if out is None:
            return []
        self._bytes -= len(out.publication.payload) + OVERHEAD_BYTES
        self._figures.published += 1
        return self.pause()

    def failed(self, event: PublishFailed) -> list[Effect]:
        out = self._waiting.get(event.token)
        if out is None:
            return []
        out.tries += 1
        if not event.final and out.publication.qos and out.tries < TRIES_MAX:
            self._figures.retried += 1
            return [SetTimer(name=f"{SEND}{event.token}", delay_us=delay_us(out.tries))]
        del self._waiting[event.token]
        self._bytes -= len(out.publication.payload) + OVERHEAD_BYTES
        self._figures.refused += 1
        facts: dict[str, object] = {"topic": out.publication.topic, "problem": event.reason}
        return [Note(event="the network does not take a sample", facts=facts, warn=True), *self.pause()]

    def again(self, token: str) -> list[Effect]:
        out = self._waiting.get(int(token))
        if out is None:
            return []
        return [Publish(token=int(token), publication=out.publication, entity=out.entity)]
