"""Finds out which records a log has already, after an append whose outcome is unknown.

A log takes a record's id once while it remembers it (``LogSpec.dedupe_window_s``). A caller that tries again later, or
does not know the time by the log's clock, looks first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tocsin.errors import Trimmed
from tocsin.ports import Log, Record

# Entries behind a position for each subject that is looked for: up to so many, all are read at once.
TOGETHER: Final = 16
EVERYTHING: Final = ">"


async def appended(log: Log, records: Iterable[Record], behind: int) -> tuple[dict[str, int], int]:
    """The positions of those that the log has behind a position, by id; and up to where it was looked at."""
    wanted: dict[str, set[str]] = {}
    for record in records:
        wanted.setdefault(record.subject, set()).add(record.id)
    if len(wanted) > 1 and await log.last() - behind <= TOGETHER * len(wanted):
        wanted = {EVERYTHING: set().union(*wanted.values())}
    found: dict[str, int] = {}
    ends = [await _look(log, subject, ids, behind, found) for subject, ids in wanted.items()]
    return found, min(ends, default=behind)


async def _look(log: Log, subject: str, ids: set[str], behind: int, found: dict[str, int]) -> int:
    start = behind + 1
    while True:
        try:
            page = await log.read(subject, start, fresh=True)
        except Trimmed as error:  # what is gone from the log is gone from every look
            start = error.oldest
            continue
        found.update((entry.id, entry.position) for entry in page.entries if entry.id in ids)
        if page.next > page.last or ids <= found.keys():
            return page.last
        start = page.next
