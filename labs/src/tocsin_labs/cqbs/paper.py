"""The paper's results (section V), in milliseconds unless the name says otherwise.

Brokers and coordinators each had a machine of two processors there; here everything shares one.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Published(msgspec.Struct, frozen=True):
    """A latency as it was published."""

    mean: float
    p95: float
    deviation: float | None = None


SINGLE: Final = {  # by the number of subscribers
    1: Published(4.67, 4.85, 0.55),
    10: Published(4.62, 4.77, 0.37),
    100: Published(13.58, 8.87, 67.13),
}
ALONE: Final = Published(24.7, 57.3)
REPLICATED: Final = Published(95.5, 191.2)
GAP_S: Final = 15.0
WHOLE: Final = Published(129.60, 7.59, 891.0)
LINES: Final = {  # Table II: lines of a client, by what they are for
    "Python": {"base": 105, "failover": 60, "subscriber": 28, "publisher": 33, "total": 226},
    "Go": {"base": 175, "failover": 111, "subscriber": 65, "publisher": 69, "total": 420},
}
