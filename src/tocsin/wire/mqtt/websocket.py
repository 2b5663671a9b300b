"""MQTT over WebSocket, as section 6 of the standard has it: the words that both sides use, and their bounds."""

from __future__ import annotations

from typing import Final

PATH: Final = "/mqtt"
NO_PATH: Final = "/"  # of a URL that has none
SUBPROTOCOL: Final = "mqtt"
REQUEST_MAX_BYTES: Final = (
    16 << 10
)  # of the request that opens a WebSocket; web servers commonly have as much
ORIGIN_MAX: Final = 280  # characters kept: a scheme, a DNS name (253 at most) and a port
FRAME_MARGIN_BYTES: Final = 64 << 10  # of small packets that share a frame with the largest
