"""The PubSubCoord paper's results, as far as they are numbers.

Its text has none for Figure 6. Those here are in the original's plot scripts (``plots/test.py``, ``plots/test2.py``),
with the figure's axes: that they are the figure is inferred. Milliseconds, shares of a processor, MB of 10⁶ bytes.
"""

from __future__ import annotations

from typing import Final

LOCALITIES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
MEANS_MS: Final = {  # Figure 6: topics a LAN → locality → mean
    100: dict(zip(LOCALITIES, (152.4, 143.6, 120.6, 94.1, 65.6), strict=True)),
    80: dict(zip(LOCALITIES, (143.3, 135.4, 117.2, 94.3, 60.4), strict=True)),
    60: dict(zip(LOCALITIES, (138.5, 133.9, 114.6, 90.1, 49.0), strict=True)),
}
EDGE_SHARES: Final = dict(zip(LOCALITIES, (0.286, 0.280, 0.249, 0.241, 0.223), strict=True))  # 100 topics
EDGE_MB: Final = dict(zip(LOCALITIES, (753.0, 723.0, 687.0, 651.0, 610.0), strict=True))
JOINS_MS: Final = {2_000: 10.0, 10_000: 20.0}  # Figure 7c: from … to; nothing is said of those between
