"""The paper's results (section VI.B), as far as its text has numbers.

Its figures have no values in the text but these two; everything else there is a comparison without values
(``claims``).
"""

from __future__ import annotations

from typing import Final

NOTIFICATION_OVERHEAD: Final = 0.0  # of REAPS over no fault tolerance (with Fig 4a)
REMOTE_MAX: Final = 0  # non-overlapping remote subscriptions of the worst broker with REAPS (with Fig 4c)
