"""``tocsin user`` for those who registered, with a store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tocsin.cli.main import main
from tocsin.cli.verbs import user_accounts as accounts
from tocsin.config import Settings
from tocsin.core.access.accounts import (
    ACCOUNT,
    INVITATION,
    Account,
    account_key,
    accounts_table,
    invitation_key,
)
from tocsin.ports import Table
from tocsin.runtime.security.users import set_password
from tocsin.store.memory.store import MemoryServer, MemoryStore

WAITING = Account("~ann", "$argon2id$1", "approved", 1_000, "waiting")
ACTIVE = Account("~bob", "$argon2id$2", "open", 1_000, "active", True)


class Network:
    """A network's accounts, and the file with its settings."""

    def __init__(self, directory: Path) -> None:
        self.server = MemoryServer()
        self._table = self.server.open_table(accounts_table("tocsin")).state
        for each in (WAITING, ACTIVE):
            self._table.put(account_key(each.name), ACCOUNT.write(each), self.now_us)
        self.directory = directory
        self.config = directory / "tocsin.toml"
        set_password(directory / "users", "gateway", b"secret")
        (directory / "registered.toml").touch()
        self.config.write_text(f"""
            state = "{directory / "state"}"
            [access]
            users = "{directory / "users"}"
            registration = "approved"
            registered_rules = "{directory / "registered.toml"}"
        """)

    @property
    def now_us(self) -> int:
        return self.server.clock.now_us()

    @asynccontextmanager
    async def opened(self, settings: Settings) -> AsyncIterator[Table]:
        yield await MemoryStore(self.server).table(accounts_table(settings.network))

    def user(self, *arguments: str) -> int:
        return main(["user", *arguments, "-c", str(self.config)])

    def cell(self, key: str) -> bytes | None:
        cell = self._table.get(key, self.now_us)
        return None if cell is None else cell.value

    def account(self, name: str) -> Account | None:
        value = self.cell(account_key(name))
        return None if value is None else ACCOUNT.read(value)


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    network = Network(tmp_path)
    monkeypatch.setattr(accounts, "_opened", network.opened)
    return network


def test_the_list_says_where_an_account_comes_from(
    network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    assert network.user("list") == 0
    assert capsys.readouterr().out.splitlines() == [
        "gateway\tusers file",
        "~ann\tregistered; waits for approval",
        "~bob\tregistered; used",
    ]
    assert main(["user", "list", "--file", str(network.directory / "users")]) == 0
    assert capsys.readouterr().out == "gateway\n"


def test_who_waits_is_approved_once(network: Network, capsys: pytest.CaptureFixture[str]) -> None:
    assert network.user("pending") == 0
    assert capsys.readouterr().out == "~ann\n"
    assert network.user("approve", "ann") == 0
    assert network.account("~ann") == Account("~ann", "$argon2id$1", "approved", 1_000, "active")
    assert network.user("approve", "~ann") == 2
    assert "does not wait" in capsys.readouterr().err
    audit = (network.directory / "state" / "audit" / "audit.log").read_text()
    assert audit.count('"approve user"') == 2


def test_who_is_rejected_leaves_the_name(network: Network, capsys: pytest.CaptureFixture[str]) -> None:
    assert network.user("reject", "~bob") == 2
    assert "tocsin user remove ~bob" in capsys.readouterr().err
    assert network.user("reject", "~ann") == 0
    assert network.account("~ann") is None
    assert network.user("reject", "~ann") == 2
    assert "nobody has registered as ~ann" in capsys.readouterr().err


def test_a_removed_account_keeps_its_name_for_a_while(network: Network) -> None:
    assert network.user("remove", "~bob") == 0
    assert network.account("~bob") == Account("~bob", "", "open", 1_000, "removed", True)
    assert network.user("remove", "~bob") == 2
    assert network.user("remove", "gateway") == 0


def test_an_invitation_is_stored_under_the_digest_of_its_token(
    network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    assert network.user("invite", "--days", "2", "--note", "Ann's phone") == 0
    token = capsys.readouterr().out.strip()
    value = network.cell(invitation_key(token))
    assert value is not None
    made = INVITATION.read(value)
    assert made.ends_s - made.made_s == 2 * 86_400 and made.note == "Ann's phone"
    assert len(token) == 40
    assert token not in (network.directory / "state" / "audit" / "audit.log").read_text()


def test_nobody_is_added_to_the_file_under_the_name_of_who_registers(
    network: Network, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.cli.verbs.user._password", lambda from_stdin: b"secret")
    assert network.user("add", "~ann") == 2
    assert "of users who register" in capsys.readouterr().err
