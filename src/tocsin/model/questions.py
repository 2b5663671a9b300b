"""Questions to the pipeline and the feeder on the bus, and their answers: JSON objects, each with its version.

    subject                    question             answer
    N.pipeline.sql.USER        ``AskedScript``      ``model.answer.Reply``
    N.pipeline.run             ``AskedRun``         ``model.answer.Reply``
    N.pipeline.results         ``AskedResults``     ``Fetched``
    N.pipeline.status          nothing              the pipeline's status
    N.feeder.status            nothing              the feeder's status

A question without a version is read as version 1: a question by hand need not state one. A newer question is answered
with words, and nothing is done.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tocsin.model.answer import Reply
from tocsin.model.versions import Document

ROWS_DEFAULT: Final = 1_000
FETCH_MAX_BYTES: Final = 800_000  # of one answer: under what the bus carries


class AskedScript(msgspec.Struct, frozen=True):
    """Run a script."""

    text: str
    limit: int = ROWS_DEFAULT  # rows of each answer


class AskedRun(msgspec.Struct, frozen=True):
    """Run a channel now."""

    channel: str


class AskedResults(msgspec.Struct, frozen=True):
    """A broker asks for results that it cannot read in the storage."""

    notice: str  # ``model.results.NOTICE``, in hex
    broker: str = ""
    ks: tuple[str, ...] = ()  # beside the broker's own, from whichever broker's files
    from_ordinal: int = 0
    limit_bytes: int = FETCH_MAX_BYTES
    pieces: bool = False  # the broker puts a result together that is too large for one answer
    from_byte: int = 0  # of the first result's payload: the next piece is wanted


class Fetched(msgspec.Struct, frozen=True):
    """Some of the results, or why there are none."""

    rows: tuple[
        tuple[int, str, int, str, int, str], ...
    ] = ()  # ordinal, channel, execution, k, priority, payload
    next: int | None = None  # the ordinal to go on with
    error: str | None = None
    gone: bool = False  # the results are no longer kept
    piece_of: int = (
        0  # there is one row, with a piece of its payload in base64; the payload has so many bytes
    )


class Nothing(msgspec.Struct, frozen=True):
    """A question that needs no words."""


SCRIPT: Final = Document("a script for the pipeline", msgspec.json.Decoder(AskedScript))
RUN: Final = Document("a request to run a channel", msgspec.json.Decoder(AskedRun))
REPLY: Final = Document("the answer to a script", msgspec.json.Decoder(Reply))
WANTED: Final = Document("a request for results", msgspec.json.Decoder(AskedResults))
FETCHED: Final = Document("results that were asked for", msgspec.json.Decoder(Fetched))
ASK: Final = Document("a question for a status", msgspec.json.Decoder(Nothing))
PIPELINE: Final = Document("the status of the pipeline", msgspec.json.Decoder(dict[str, Any]))
FEEDER: Final = Document("the status of the feeder", msgspec.json.Decoder(dict[str, Any]))
