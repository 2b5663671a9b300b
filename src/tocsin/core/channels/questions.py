"""Questions for results that wait for their answers: how many a client may have, and whose answer is read next.

    asked ──► queued (the channel is known, the client may) ──► read, a few at a time for the broker ──► done

Clients take turns: of those that have questions queued, the one whose last question was begun longest ago comes next.
So however many questions others ask, a client waits for one of each of them at most.

Invariants: a client has at most ``per_client`` questions that are not done; at most ``at_once`` answers are read; while
a question is queued, as many are read as may be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

AT_ONCE: Final = 4  # answers that a broker reads at a time
PER_CLIENT: Final = 8  # questions of one client that may wait for their answers
ANSWER_S: Final = 30.0  # to read one answer: files that cannot be read must not stop others for ever

Client = TypeVar("Client", bound=Hashable)
Question = TypeVar("Question", bound=Hashable)


class Questions(Generic[Client, Question]):
    """The questions of all clients of one broker. ``queue`` and ``done`` return those whose answers are to be read."""

    def __init__(self, at_once: int = AT_ONCE, per_client: int = PER_CLIENT) -> None:
        self._at_once = at_once
        self._per_client = per_client
        self._asked: dict[Client, int] = {}  # questions that are not done
        self._queued: dict[Client, deque[Question]] = {}  # never empty; in the order of turns
        self._read: set[Question] = set()

    def __len__(self) -> int:
        """How many questions are not done."""
        return sum(self._asked.values())

    def ask(self, client: Client) -> bool:
        """A client has one more question; whether it may. If so, ``done`` has to be said in the end."""
        asked = self._asked.get(client, 0)
        if asked >= self._per_client:
            return False
        self._asked[client] = asked + 1
        return True

    def queue(self, client: Client, question: Question) -> list[Question]:
        """A question of a client's can be answered."""
        self._queued.setdefault(client, deque()).append(question)
        return self._next()

    def done(self, client: Client, question: Question) -> list[Question]:
        """A question is answered, refused, or nobody wants to know any more."""
        if self._asked[client] > 1:
            self._asked[client] -= 1
        else:
            del self._asked[client]
        self._read.discard(question)
        queued = self._queued.get(client, ())
        if question in queued:
            assert isinstance(queued, deque), "what is queued is in a queue"
            queued.remove(question)
            if not queued:
                del self._queued[client]
        return self._next()

    def _next(self) -> list[Question]:
        begun: list[Question] = []
        while self._queued and len(self._read) < self._at_once:
            client = next(iter(self._queued))
            queued = self._queued.pop(client)
            begun.append(queued.popleft())
            self._read.add(begun[-1])
            if queued:
                self._queued[client] = queued  # behind the others
        return begun
