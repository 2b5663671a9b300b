"""Server references: where a server sends its clients, as MQTT 5 (4.11) suggests to write it.

host:port   host   [2001:db8::1]:port   [2001:db8::1]       several with blanks between them, best first
"""

from __future__ import annotations

import re
from typing import Final

from tocsin.config.rules import is_host

Server = tuple[str, int | None]  # host, and port if one is given

_ONE: Final = re.compile(r"(?:\[(?P<v6>[^]]+)\]|(?P<host>[^\[\]:]+))(?::(?P<port>[0-9]{1,5}))?")


def server_of(reference: str | None) -> Server | None:
    """The first server of a reference that can be understood; None if there is none."""
    for word in (reference or "").split():
        read = _ONE.fullmatch(word)
        if read is None:
            continue
        host, port = read["v6"] or read["host"], read["port"]
        if is_host(host) and (port is None or 0 < int(port) < 65_536):
            return host, None if port is None else int(port)
    return None
