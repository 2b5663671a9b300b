"""Queries inside MQTT topic filters, where ``+`` and ``#`` are wildcards.

``%2B``, ``%23``, ``%25`` and ``%2F`` stand for ``+``, ``#``, ``%`` and ``/``, in either case. A ``%`` before anything
else is itself, so that ``LIKE 'a%'`` needs no escape; a plain ``/`` is itself as well.
"""

from __future__ import annotations

import re
from typing import Final

_MEANT: Final = {"%2B": "+", "%23": "#", "%25": "%", "%2F": "/"}
_WRITTEN: Final = str.maketrans({"+": "%2B", "#": "%23", "%": "%25"})
_ESCAPE: Final = re.compile("%(?:2[35BF])", re.IGNORECASE)


def decode_filter(text: str) -> str:
    """The query that stands in a topic filter (after ``$query/``)."""
    return _ESCAPE.sub(lambda escape: _MEANT[escape[0].upper()], text)


def encode_filter(text: str) -> str:
    """The query as it can stand in a topic filter: no wildcards in it, and ``decode_filter`` gives it back."""
    return text.translate(_WRITTEN)
