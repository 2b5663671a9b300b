"""A collector of figures, for tests: it fetches them, and reads them as the format says."""

from __future__ import annotations

import asyncio
import re

SAMPLE = re.compile(r'([a-z_]+)(?:\{(\w+)="(\w+)"\})? (-?[0-9.e+-]+)')


def samples(text: str) -> dict[tuple[str, str], float]:
    """Read as the format says: help and type before the samples of a family, and each sample once."""
    found: dict[tuple[str, str], float] = {}
    typed: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            if word == "TYPE":
                assert rest in ("counter", "gauge") and name not in typed
                assert (rest == "counter") == name.endswith("_total")
                typed.add(name)
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        key = (match[1], match[3] or "")
        assert match[1] in typed and key not in found
        found[key] = float(match[4])
    return found


async def said(address: str, request: bytes) -> bytes:
    host, _, port = address.removeprefix("http://").partition("/")[0].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer
