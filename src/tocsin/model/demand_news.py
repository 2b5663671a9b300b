"""Messages to subscribers of ``$wanted/<filter>``, as JSON with its version.

{"v": 1, "filter": "hall/1/+", "wanted": true}
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.model.versions import Document


class DemandNews(msgspec.Struct):
    """Whether anybody wants topics of a filter."""

    filter: str
    wanted: bool


DEMAND_NEWS: Final = Document("whether a filter is wanted", msgspec.json.Decoder(DemandNews))
