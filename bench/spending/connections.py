"""The memory that one connection makes a broker hold: plain, over TLS, and over TLS after large packets. And what a
coordinator holds of streams, beside what it counts.

``python -m bench.spending.connections`` takes a minute; ``core.budgets.stated_sum`` has its figures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Final

import psutil
from mqtt5 import ConnectPacket, PublishPacket

from bench.coordinator import state_of
from bench.spending.__main__ import memory, most_of, network
from tocsin.runtime.security.authority import Authority
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5

KIB: Final = 1 << 10
PLAIN, TLS, LARGE = 2_000, 300, 200  # connections
STREAMS, QUERIES = 30_000, 5_000


async def held(pid: int, port: int, count: int, context: ssl.SSLContext | None, data: bytes = b"") -> float:
    """KiB a connection that a broker holds more with so many, after each has sent this."""
    before = most_of(memory(pid), "broker")
    writers: list[asyncio.StreamWriter] = []
    for number in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(encode(ConnectPacket(f"c{number:05}", keep_alive=0), V5))
        await reader.read(1_000)
        writer.write(data)
        await writer.drain()
        writers.append(writer)
    await asyncio.sleep(12)  # until freed memory was given back
    found = (most_of(memory(pid), "broker") - before) * KIB / count
    for writer in writers:
        writer.transport.abort()
    return found


def settings(directory: Path) -> list[str]:
    """The settings of one broker with a plain and a TLS port."""
    issued = Authority.open_or_make(directory).issue("door", role="broker", hosts=("127.0.0.1",))
    brokers = json.dumps([{"id": "north-1", "cluster": "north", "port": 0, "tls_port": 0}])
    files = [f"tls.certificate={issued.certificate_path}", f"tls.key={issued.key_path}"]
    return [f"brokers={brokers}", "pipeline.enabled=never", "log.level=warning", *files]


def main() -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is said to it
    large = encode(PublishPacket("nobody/asks", b"x" * 900_000), V5) * 3
    cases = (("plain", PLAIN, None, b""), ("TLS", TLS, context, b""), ("TLS, large", LARGE, context, large))
    with tempfile.TemporaryDirectory() as directory:
        given = settings(Path(directory) / "certs")
        for words, count, over, data in cases:
            with network(given) as ready:
                broker = ready["brokers"][0]
                port = broker["port" if over is None else "tls_port"]
                found = asyncio.run(held(ready["pid"], port, count, over, data))
            print(f"{words:12} {found:6.0f} KiB a connection, of {count}", flush=True)
    gc.collect()
    before = psutil.Process().memory_info().rss
    state, _ = state_of(STREAMS, QUERIES)
    gc.collect()
    ratio = (psutil.Process().memory_info().rss - before) / (state.presence.cost + state.matching.cost)
    print(f"coordinator  {ratio:6.2f} times what is counted, of {STREAMS} streams and {QUERIES} queries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
