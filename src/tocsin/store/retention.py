"""How far back logs are still needed, for the clean-up.

Notices, and the results that they name, are needed by the stored sessions of clients that are away, or behind, and by
groups that share results. A client without a session that lasts is promised nothing when it falls behind. The log of
feeds is needed by feeds whose last append may have been cut short (``model.feeding``).
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from tocsin.core.channels.channel_filter import ChannelFilter
from tocsin.core.delivery.stored_session import StoredSession, decode_session
from tocsin.core.shared.stored_group import GROUP_KEYS, decode_group
from tocsin.errors import FormatNewer, Malformed
from tocsin.model.feeding import PREFIX, FeedCell, decode_cell, floor
from tocsin.model.results import notice_position
from tocsin.ports import Cell, Log, Table

LOOKS: Final = 16  # cells that are asked for at once: it is in no hurry


async def retention_floor(sessions: Table, groups: Table, notices: Log) -> int:
    """The oldest position of a notice that a session or group may still need; beyond the newest if none does.

    A later subscriber needs nothing from before, so that positions below stay unneeded.
    """
    floor = await notices.last() + 1  # first: a session that is stored during the scan is not below it
    for table, prefix, oldest in ((sessions, "", needed), (groups, GROUP_KEYS, needed_by_group)):
        left = list(await table.keys(prefix, fresh=True))  # what is missed here loses results that it needs
        while left:
            some, left = left[:LOOKS], left[LOOKS:]
            for cell in await asyncio.gather(*(_found(table, key) for key in some)):
                if cell is not None:
                    floor = min(floor, oldest(cell.value))
    return floor


async def _found(table: Table, key: str) -> Cell | None:
    """A cell that was listed. An older one needs more, so that any will do; but that it is gone has to be true."""
    cell = await table.get(key)
    return cell if cell is not None else await table.get(key, fresh=True)


def needed(value: bytes) -> int:
    """The oldest position that one stored session may need."""
    try:
        session = decode_session(value)
    except Malformed as error:  # damaged: nobody can tell what it needs
        structlog.get_logger().warning("a stored session is unreadable", problem=str(error))
        return _NOTHING
    except FormatNewer as error:  # it may need everything
        structlog.get_logger().warning("nothing is trimmed: a stored session is newer", problem=str(error))
        return 0
    return _oldest(session)


def needed_by_group(value: bytes) -> int:
    """The same of one stored group."""
    try:
        group = decode_group(value)
    except Malformed as error:
        structlog.get_logger().warning("a stored group is unreadable", problem=str(error))
        return _NOTHING
    except FormatNewer as error:
        structlog.get_logger().warning("nothing is trimmed: a stored group is newer", problem=str(error))
        return 0
    return notice_position(group.oldest) if group.source is not None and group.begun else _NOTHING


_NOTHING: Final = 1 << 62


def _oldest(session: StoredSession) -> int:
    wants = any(session.subscriptions[name].qos for name in session.named(ChannelFilter))
    if not wants or session.results is None:
        return _NOTHING
    tracks = (session.results, session.critical or session.results)
    return min(notice_position(each.position + 1) for each in tracks)


async def feeds_floor(cells: Table, end: int) -> int:
    """The position before which the log of feeds may be trimmed: ``end``, or less if a feed needs more.

    ``end`` is asked for first, so that whatever lies before it was intended by now.
    """
    found: list[FeedCell] = []
    for key in await cells.keys(PREFIX, fresh=True):
        cell = await _found(cells, key)
        if cell is None:
            continue
        try:
            found.append(decode_cell(cell.value))
        except Malformed as error:  # its feed starts from the beginning
            structlog.get_logger().warning("a feed's cell is unreadable", key=key, problem=str(error))
        except FormatNewer as error:  # it may need everything
            structlog.get_logger().warning(
                "nothing is trimmed: a feed's cell is newer", key=key, problem=str(error)
            )
            return 0
    return floor(found, end)
