"""An AMQP 1.0 peer on Apache Qpid Proton, another implementation than ours: run by Debian's Python, with a port.

It keeps messages of an address in memory for who reads from it. The address ``rejects`` takes nothing; ``releases``
takes what comes for the third time. Each message that it takes is a line of output: the address, the id, the body.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from typing import Any

from proton.handlers import MessagingHandler
from proton.reactor import Container


class PlayedBroker(MessagingHandler):  # type: ignore[misc]  # Proton has no types where we check ours
    """Queues in memory."""

    def __init__(self, port: int) -> None:
        super().__init__(auto_accept=False)
        self._port = port
        self._queues: dict[str, deque[Any]] = defaultdict(deque)
        self._readers: dict[str, list[Any]] = defaultdict(list)
        self._released = 0

    def on_start(self, event: Any) -> None:
        event.container.listen(f"127.0.0.1:{self._port}")
        print("listening", flush=True)

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if link.is_sender:
            link.source.address = link.remote_source.address
            self._readers[link.source.address].append(link)
        else:
            link.target.address = link.remote_target.address

    def on_sendable(self, event: Any) -> None:
        self._push(event.link.source.address)

    def on_message(self, event: Any) -> None:
        address, message = event.link.target.address, event.message
        if address == "rejects":
            self.reject(event.delivery)
        elif address == "releases" and self._released < 2:
            self._released += 1
            self.release(event.delivery, delivered=False)
        else:
            print(address, message.id, bytes(message.body).decode(), flush=True)
            self.accept(event.delivery)
            self._queues[address].append(message)
            self._push(address)

    def _push(self, address: str) -> None:
        for link in self._readers[address]:
            while link.credit and self._queues[address]:
                link.send(self._queues[address].popleft())

    def on_disconnected(self, event: Any) -> None:
        for address, links in self._readers.items():
            self._readers[address] = [each for each in links if each.connection != event.connection]


if __name__ == "__main__":
    Container(PlayedBroker(int(sys.argv[1]))).run()
