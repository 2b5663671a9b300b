"""What an operator does with accounts that registered: the store alone is asked, no broker.

A decision is a compare-and-set of the account as it was shown: what its user did meanwhile is not undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from tocsin.config import Settings
from tocsin.core.access.accounts import (
    ACCOUNT,
    INVITATION,
    MARK,
    PREFIX,
    TOKEN_BYTES,
    Account,
    Known,
    account_key,
    account_name,
    accounts_table,
    invitation_key,
)
from tocsin.core.access.registration import Terms, approved, invitation, lasting_us, removed, terms_of
from tocsin.errors import Conflict, OperatorError
from tocsin.model.versions import UNREADABLE
from tocsin.ports import KEYS_MAX, Table
from tocsin.runtime.machines.clock import token_hex, wall_s
from tocsin.store.jetstream.store import JetStreamStore

LIST: Final = "See `tocsin user list` and `tocsin user pending`"

Result = TypeVar("Result")


def at_store(settings: Settings, work: Callable[[Table], Awaitable[Result]]) -> Result:
    """Do something with the accounts of a network."""

    async def run() -> Result:
        async with _opened(settings) as table:
            return await work(table)

    return asyncio.run(run())


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Table]:
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin user")
    try:
        yield await store.table(accounts_table(settings.network))
    finally:
        await store.close()


async def accounts(table: Table) -> list[Account]:
    """All accounts that can be read, by name."""
    keys = await table.keys(PREFIX, fresh=True)
    found: list[Account] = []
    for first in range(0, len(keys), KEYS_MAX):
        for cell in (await table.get_many(keys[first : first + KEYS_MAX], fresh=True)).values():
            try:
                found.append(ACCOUNT.read(cell.value))
            except UNREADABLE:
                continue  # of a newer release, which can show it
    return sorted(found, key=lambda each: each.name)


async def approve(table: Table, name: str, settings: Settings) -> None:
    """Let an account in that waits."""
    known = await _find(table, name)
    if known.account.state != "waiting":
        raise OperatorError(f"{known.account.name} does not wait for approval", LIST)
    await _write(table, known, approved(known.account), terms_of(settings))


async def reject(table: Table, name: str, settings: Settings) -> None:
    """Drop an account that waits; its name is free."""
    known = await _find(table, name)
    if known.account.state != "waiting":
        raise OperatorError(
            f"{known.account.name} does not wait for approval",
            f"Remove it with `tocsin user remove {known.account.name}`",
        )
    await _write(table, known, None, terms_of(settings))


async def remove(table: Table, name: str, settings: Settings) -> None:
    """Remove an account; its clients are disconnected, and its name stays taken for as long as sessions of it may."""
    known = await _find(table, name)
    if known.account.state == "removed":
        raise OperatorError(f"{known.account.name} is removed already", LIST)
    await _write(table, known, removed(known.account), terms_of(settings))


async def invite(table: Table, days: int, note: str) -> str:
    """Make an invitation; its token."""
    token = token_hex(TOKEN_BYTES)
    lasts_s = days * 86_400
    value = INVITATION.write(invitation(int(wall_s()), lasts_s, note))
    await table.compare_and_set(invitation_key(token), value, revision=0, ttl_s=lasts_s)
    return token


def words_of(account: Account) -> str:
    """Where an account comes from, and how it is."""
    how = {"open": "registered", "invited": "registered, invited", "approved": "registered, approved"}
    state = {"active": "used" if account.used else "not used yet", "waiting": "waits for approval"}
    came = "registered" if account.state == "waiting" else how[account.how]
    return f"{came}; {state.get(account.state, 'removed')}"


async def _find(table: Table, name: str) -> Known:
    cell = await table.get(account_key(name), fresh=True)
    if cell is None:
        raise OperatorError(f"nobody has registered as {account_name(name)}", LIST)
    try:
        return Known(ACCOUNT.read(cell.value), cell.revision)
    except UNREADABLE as error:
        raise OperatorError(
            f"the account {MARK}{name} cannot be read: {error}", "Upgrade this program"
        ) from None


async def _write(table: Table, known: Known, account: Account | None, terms: Terms) -> None:
    key = account_key(known.account.name)
    try:
        if account is None:
            await table.delete(key, revision=known.revision)
            return
        ttl_us = lasting_us(account, terms)
        ttl_s = None if ttl_us is None else max(1, ttl_us // 1_000_000)
        await table.compare_and_set(key, ACCOUNT.write(account), revision=known.revision, ttl_s=ttl_s)
    except Conflict:
        raise OperatorError(
            f"{known.account.name} was changed by somebody else at the same moment", "Try again"
        ) from None
