from __future__ import annotations

import pytest

from tocsin.core.access.accounts import (
    ACCOUNT,
    Account,
    Accounts,
    account_key,
    account_name,
    invitation_key,
    is_registered,
    name_problem,
)
from tocsin.ports import Change

ANN = Account("~ann", "$argon2id$1", "open", 1_000)


def put(account: Account, revision: int) -> Change:
    return Change("put", account_key(account.name), ACCOUNT.write(account), revision)


def told(*changes: Change) -> Accounts:
    accounts = Accounts()
    for change in (Change("reset"), *changes, Change("ready")):
        accounts.take(change)
    return accounts


@pytest.mark.parametrize("name", ["ann", "~ann", "a", "ann.b", "ann@example.org", "x-1_2", "a" * 63])
def test_an_account_can_have_a_plain_name(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "~",
        "Ann",
        "ann\n",
        "a/b",
        "a+b",
        "#",
        "a b",
        "\u0430nn",
        "a\u0301",
        "-a",
        "a-",
        "~~a",
        "$a",
        "a" * 64,
        "a:b",
    ],
)
def test_an_account_cannot_have_a_name_that_misleads(name: str) -> None:
    assert name_problem(name) is not None


def test_a_name_is_the_same_with_and_without_its_mark() -> None:
    assert account_name("ann") == account_name("~ann") == "~ann"
    assert account_key("ann") == account_key("~ann")
    assert is_registered("~ann") and not is_registered("ann")


def test_names_with_dots_have_keys_of_their_own() -> None:
    assert account_key("a.b") != account_key("a_b")
    assert account_key("a.b").count(".") == 1


def test_the_table_does_not_have_an_invitations_token() -> None:
    assert "secret" not in invitation_key("secret")


def test_accounts_are_what_the_table_says() -> None:
    accounts = told(put(ANN, 1))
    assert accounts.ready and len(accounts) == 1
    assert accounts.takes("ann") and accounts.hash_of("~ann") == ANN.hashed
    assert accounts.hash_of("ann") is None  # a user of the operator's may have that name


def test_a_changed_password_is_told_and_a_used_account_is_not() -> None:
    accounts = told(put(ANN, 1))
    used = Account(ANN.name, ANN.hashed, "open", 1_000, "active", True)
    assert accounts.take(put(used, 2)) == frozenset()
    other = Account(ANN.name, "$argon2id$2", "open", 1_000, "active", True)
    assert accounts.take(put(other, 3)) == {"~ann"}
    assert accounts.take(Change("delete", account_key("ann"), revision=4)) == {"~ann"}
    assert not accounts.takes("ann")


def test_an_account_that_went_during_an_outage_is_told() -> None:
    accounts = told(put(ANN, 1))
    changes = (Change("reset"), Change("ready"))
    assert [accounts.take(each) for each in changes] == [frozenset(), {"~ann"}]


def test_an_account_written_here_outlives_older_news() -> None:
    accounts = told(put(ANN, 5))
    assert accounts.take(Change("delete", account_key("ann"), revision=4)) == frozenset()
    assert accounts.take(put(Account("~ann", "old", "open", 1), 3)) == frozenset()
    assert accounts.hash_of("~ann") == ANN.hashed


def test_an_account_written_here_during_a_reset_stays() -> None:
    accounts = told()
    accounts.take(Change("reset"))
    accounts.learn(ANN, 7)
    assert accounts.take(Change("ready")) == frozenset()
    assert accounts.takes("ann")


@pytest.mark.parametrize("value", [b"\x1f\x90", b"rubbish", ACCOUNT.write(Account("bob", "h", "open", 1))])
def test_a_cell_that_cannot_be_read_keeps_its_name_and_admits_nobody(value: bytes) -> None:
    accounts = told(put(ANN, 1))
    assert accounts.take(Change("put", account_key("ann"), value, 2)) == {"~ann"}
    assert accounts.takes("ann") and accounts.hash_of("~ann") is None and len(accounts) == 1


def test_a_removed_account_takes_its_name_and_admits_nobody() -> None:
    accounts = told(put(Account("~ann", "", "open", 1_000, "removed", True), 1))
    assert accounts.takes("ann") and accounts.hash_of("~ann") is None
    assert accounts.made_since(1_000) == 1 and accounts.made_since(1_001) == 0
