"""The topics on which somebody here publishes under a promise: whatever is published there is looked at.

The hot path asks whether a topic is among them, and nothing else; who promises nothing is not looked at.
"""

from __future__ import annotations


class Attended(dict[str, int]):
    """Topics, each with the number of reasons to look at what is published there."""

    def add(self, topic: str) -> None:
        self[topic] = self.get(topic, 0) + 1

    def remove(self, topic: str) -> None:
        self[topic] -= 1
        if not self[topic]:
            del self[topic]
