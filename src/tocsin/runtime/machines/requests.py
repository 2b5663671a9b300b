"""Carries out a machine's store requests: the effect in, the event with its outcome out."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from tocsin.core.machine import (
    Append,
    DeleteKey,
    Event,
    GetKey,
    PutKey,
    ReadLog,
    Stored,
    StoreFailed,
    TrimLog,
)
from tocsin.errors import TocsinError
from tocsin.ports import Log, Table

Request = Append | ReadLog | TrimLog | GetKey | PutKey | DeleteKey


async def outcome(request: Request, logs: Mapping[str, Log], tables: Mapping[str, Table]) -> Event:
    """``Stored`` or ``StoreFailed``, under the request's name and with its cause."""
    try:
        value = await _asked(request, logs, tables)
    except TocsinError as error:
        return StoreFailed(cause=request.cause, request=request.request, error=error)
    return Stored(cause=request.cause, request=request.request, value=value)


def _asked(request: Request, logs: Mapping[str, Log], tables: Mapping[str, Table]) -> Awaitable[Any]:
    match request:
        case Append(log=name, records=records, expected=expected):
            return logs[name].append(records, expected=expected)
        case ReadLog(log=name, subject=subject, start=start, limit=limit, fresh=fresh):
            return logs[name].read(subject, start, limit=limit, fresh=fresh)
        case TrimLog(log=name, before=before, subject=subject):
            return logs[name].trim(before=before, subject=subject)
        case GetKey(table=name, key=key, fresh=fresh):
            return tables[name].get(key, fresh=fresh)
        case DeleteKey(table=name, key=key, revision=revision):
            return tables[name].delete(key, revision=revision)
        case PutKey():
            table = tables[request.table]
            ttl_s = None if request.ttl_us is None else request.ttl_us / 1e6
            if request.revision is None:
                return table.put(request.key, request.value, ttl_s=ttl_s)
            return table.compare_and_set(request.key, request.value, revision=request.revision, ttl_s=ttl_s)
