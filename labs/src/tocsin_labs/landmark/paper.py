"""The Landmark paper's results (its section 5), in KB and seconds. A KB has 1 000 bytes here."""

from __future__ import annotations

from typing import Final

import msgspec


class Published(msgspec.Struct, frozen=True):
    """A latency as it was published."""

    mean: float
    deviation: float
    longest: float
    shortest: float


CONTROL: Final = {10: 23.97, 20: 42.68, 30: 68.92, 40: 89.49}  # Table 1: brokers → KB/s
QUEUES: Final = {0: 496.38, 10: 595.80, 20: 704.23, 30: 800.05, 40: 907.87}  # Table 2: queues → KB
QUEUE_EACH: Final = 10.0
ROUTES: Final = {5: 627.87, 10: 690.02, 15: 751.34, 20: 810.38}  # Table 3: routes → KB
ROUTE_EACH: Final = 12.0
LINKS_MBIT: Final = 10.0  # of its emulated network
BROKERS: Final = 24  # of Table 4
LATENCY: Final = {  # Table 4: concurrent failures → seconds
    1: Published(2.92, 0.34, 3.43, 2.39),
    2: Published(5.50, 0.64, 6.78, 4.35),
    3: Published(8.52, 0.77, 9.56, 6.99),
    4: Published(11.46, 0.82, 12.63, 9.93),
    5: Published(14.37, 0.87, 15.71, 12.37),
}
