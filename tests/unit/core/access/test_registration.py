"""Registration, with a table that keeps its cells in memory and a hash that is a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tocsin.config import Settings
from tocsin.core.access.accounts import ACCOUNT, INVITATION, PREFIX, RESERVED, Accounts, invitation_key
from tocsin.core.access.registration import (
    AGAIN_US,
    AWAY,
    INVITATION_WRONG,
    REQUEST_MAX_BYTES,
    TAKEN,
    UNDER_WAY_MAX,
    WRONG,
    Asked,
    Checked,
    CheckPassword,
    Hashed,
    HashPassword,
    LoggedIn,
    Note,
    Registration,
    Reply,
    Terms,
    UsersChanged,
    approved,
    invitation,
    terms_of,
)
from tocsin.core.machine import (
    DeleteKey,
    Effect,
    Event,
    GetKey,
    PutKey,
    SetTimer,
    Stored,
    StoreFailed,
    TimerFired,
    Watched,
)
from tocsin.errors import OutcomeUnknown, StoreFull, StoreUnavailable, TocsinError
from tocsin.ports import Change, TableSpec
from tocsin.store.memory.state import TableState

OPEN = Terms(how="open")
NOW_S = 1_000_000
PASSWORD = "correct horse"


class Network:
    """The table of accounts, and the brokers that share it."""

    def __init__(self) -> None:
        self.state = TableState(TableSpec("accounts"))
        self.now_us = 1_000_000
        self.brokers: list[Broker] = []
        self.failure: TocsinError | None = None  # of every request to the store

    def wait(self, seconds: int) -> None:
        """Let time pass: cells expire."""
        self.now_us += seconds * 1_000_000
        self.state.expire(self.now_us)
        self.tell()

    def tell(self) -> None:
        for broker in self.brokers:
            broker.hear()

    def invite(self, token: str, lasts_s: int = 3_600) -> None:
        said = INVITATION.write(invitation(NOW_S, lasts_s, ""))
        self.state.put(invitation_key(token), said, self.now_us, lasts_s * 1_000_000)

    def keys(self, prefix: str = PREFIX) -> list[str]:
        return list(self.state.keys(prefix, self.now_us))


class Broker:
    """One broker: it carries out what its machine wants, at once, or when it is told to (``held``)."""

    def __init__(self, network: Network, terms: Terms = OPEN) -> None:
        self.network = network
        self.machine = Registration(terms, Accounts())
        self.replies: dict[int, Reply] = {}
        self.notes: list[Note] = []
        self.timers: list[SetTimer] = []
        self.gone: set[str] = set()
        self.hashes = 0
        self.held: list[Effect] | None = None  # effects that wait; None: none does
        self.busy = ""  # why passwords are not looked at
        self._count = 0
        network.brokers.append(self)
        self.hear()

    def hear(self) -> None:
        """Be told all that the table holds."""
        state, now_us = self.network.state, self.network.now_us
        self.post(Watched(table="accounts", change=Change("reset")))
        for key in state.keys(PREFIX, now_us):
            cell = state.get(key, now_us)
            assert cell is not None
            change = Change("put", key, cell.value, cell.revision)
            self.post(Watched(table="accounts", change=change))
        self.post(Watched(table="accounts", change=Change("ready")))

    def ask(self, verb: str, source: str = "192.0.2.1", **said: Any) -> int:
        return self.say(verb, msgspec.json.encode({"name": "ann", "password": PASSWORD, **said}), source)

    def say(self, verb: str, payload: bytes, source: str = "192.0.2.1") -> int:
        self._count += 1
        wall_s = NOW_S + self.network.now_us // 1_000_000
        topic = f"$account/{verb}"
        self.post(Asked(number=self._count, topic=topic, payload=payload, source=source, wall_s=wall_s))
        return self._count

    def answer(self, verb: str, source: str = "192.0.2.1", **said: Any) -> Reply:
        return self.replies[self.ask(verb, source, **said)]

    def post(self, event: Event) -> None:
        effects = self.machine.handle(event, self.network.now_us)
        if self.held is None:
            for each in effects:
                self.carry_out(each)
        else:
            self.held += effects

    def let_go(self) -> None:
        """Carry out what waits, and whatever follows."""
        held, self.held = self.held or [], None
        for each in held:
            self.carry_out(each)

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case Reply(number=number):
                assert number not in self.replies, "a request is answered once"
                self.replies[number] = effect
            case Note():
                self.notes.append(effect)
            case HashPassword(number=number, password=password):
                self.hashes += 1
                self.post(Hashed(number=number, hashed=f"$argon2${password.decode()}", problem=self.busy))
            case CheckPassword(number=number, name=name, password=password):
                good = self.machine.accounts.hash_of(name) == f"$argon2${password.decode()}"
                self.post(Checked(number=number, good=good, problem=self.busy))
            case UsersChanged(names=names):
                self.gone |= names
            case SetTimer():
                self.timers.append(effect)
            case _:
                self.post(self._store(effect))

    def _store(self, effect: Any) -> Event:
        state, now_us = self.network.state, self.network.now_us
        try:
            if self.network.failure is not None:
                raise self.network.failure
            value: Any = None
            match effect:
                case GetKey(key=key, fresh=True):
                    value = state.get(key, now_us)
                case PutKey(key=key, value=said, revision=revision, ttl_us=ttl_us):
                    assert revision is not None, "nothing is written over what others wrote"
                    value = state.compare_and_set(key, said, revision, now_us, ttl_us)
                case DeleteKey(key=key, revision=revision):
                    state.delete(key, now_us, revision)
                case _:
                    raise AssertionError(effect)
        except TocsinError as error:
            return StoreFailed(request=effect.request, error=error)
        return Stored(request=effect.request, value=value)


@pytest.fixture
def network() -> Network:
    return Network()


# ── registering ─────────────────────────────────────────────────────────────────────────────────────────────


def test_whoever_registers_is_known_here_at_once_and_elsewhere_soon(network: Network) -> None:
    here, there = Broker(network), Broker(network)
    assert here.answer("register") == Reply(number=1, name="~ann", became="active")
    assert here.machine.accounts.hash_of("~ann") == f"$argon2${PASSWORD}"
    network.tell()
    assert there.machine.accounts.hash_of("~ann") == f"$argon2${PASSWORD}"
    assert not here.gone and not there.gone


def test_of_two_who_take_a_name_at_two_brokers_one_has_it(network: Network) -> None:
    here, there = Broker(network), Broker(network)
    here.held = []
    first = here.ask("register", password="the first password")
    second = there.ask("register", password="the second password")
    here.let_go()
    assert there.replies[second].became == "active"
    assert here.replies[first].problem == TAKEN
    network.tell()
    assert here.machine.accounts.hash_of("~ann") == "$argon2$the second password"


def test_of_two_who_take_a_name_at_one_broker_one_has_it(network: Network) -> None:
    broker = Broker(network)
    broker.held = []
    numbers = [broker.ask("register"), broker.ask("register", password="another one")]
    broker.let_go()
    assert sorted(broker.replies[each].problem for each in numbers) == ["", TAKEN]


def test_a_name_that_is_taken_costs_no_hash(network: Network) -> None:
    broker = Broker(network)
    broker.answer("register")
    assert broker.answer("register").problem == TAKEN
    assert broker.hashes == 1


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_reserved_names_are_refused_as_names_that_are_taken(network: Network, name: str) -> None:
    assert Broker(network).answer("register", name=name).problem == TAKEN


@pytest.mark.parametrize("how", ["off", "closed"])
def test_nobody_registers_where_registration_is_closed(network: Network, how: Any) -> None:
    broker = Broker(network, Terms(how=how))
    assert "nobody can register" in broker.answer("register").problem
    assert not network.keys() and not broker.hashes


def test_an_account_can_be_changed_after_registration_has_closed(network: Network) -> None:
    Broker(network).answer("register")
    closed = Broker(network, Terms(how="closed"))
    assert closed.answer("password", new="another password").became == "active"
    assert closed.answer("remove", password="another password").became == "removed"


def test_the_store_has_no_password(network: Network) -> None:
    broker = Broker(network)
    assert [each for each in broker.notes if PASSWORD in repr(each)] == []
    broker.answer("register")
    assert [each.action for each in broker.notes] == ["register"]
    assert PASSWORD not in repr(broker.notes) and PASSWORD not in repr(broker.replies)


# ── requests that make no sense ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("verb", "payload", "words"),
    [
        ("register", b"", "JSON object"),
        ("register", b"[1]", "JSON object"),
        ("register", b'{"name": "ann"}', "password"),
        ("register", b'{"name": "ann", "password": "long enough", "admin": true}', "admin"),
        ("register", b'{"name": "ann", "password": "long enough", "v": 2}', "2"),
        ("register", b'{"name": "ann", "password": "long enough", "new": "long enough"}', "new"),
        ("register", b'{"name": "ann", "password": "short"}', "8 to"),
        ("register", b'{"name": "ann.smith", "password": "~Ann.Smith"}', "must not be the name"),
        ("register", b'{"name": "a/b", "password": "long enough"}', "lower-case"),
        (
            "register",
            b'{"name": "ann", "password": "long enough", "invitation": "' + b"x" * 200 + b'"}',
            "128",
        ),
        ("password", b'{"name": "ann", "password": "long enough"}', "new"),
        ("grant", b'{"name": "ann", "password": "long enough"}', "publish to"),
        ("register", b'{"name": "ann", "password": "' + b"x" * REQUEST_MAX_BYTES + b'"}', "at most"),
        ("register", b'{"name": "ann", "password": "' + b"x" * 2_000 + b'"}', "to 1024 bytes"),
        ("register", b'{"name": "\xff", "password": "long enough"}', "JSON object"),
        ("register", b"[" * 4_000, "JSON object"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_words(
    network: Network, verb: str, payload: bytes, words: str
) -> None:
    broker = Broker(network)
    refused = broker.replies[broker.say(verb, payload)]
    assert words in refused.problem and refused.code == 0x99
    assert not broker.hashes and not network.keys() and not len(broker.machine)


# ── bounds ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_address_has_a_rate_and_others_keep_theirs(network: Network) -> None:
    broker = Broker(network, Terms(how="open", hourly_of_address=3))
    answers = [broker.answer("register", name=f"n{each}") for each in range(5)]
    assert [each.code for each in answers] == [0, 0, 0, 0x9F, 0x9F]
    assert broker.answer("register", "192.0.2.2", name="other").became == "active"
    network.wait(1_200)
    assert broker.answer("register", name="later").became == "active"
    assert broker.answer("register", name="too-soon").code == 0x9F


def test_wrong_passwords_count_against_an_address_as_well(network: Network) -> None:
    broker = Broker(network, Terms(how="open", hourly_of_address=2))
    assert broker.answer("remove", name="nobody").problem == WRONG
    assert broker.answer("remove", name="nobody").problem == WRONG
    assert broker.answer("remove", name="nobody").code == 0x9F


def test_this_machine_has_no_rate_of_its_own(network: Network) -> None:
    broker = Broker(network, Terms(how="open", hourly_of_address=1))
    assert [broker.answer("register", "", name=f"n{each}").code for each in range(3)] == [0, 0, 0]


def test_the_networks_rate_counts_accounts_of_all_brokers_and_removed_ones(network: Network) -> None:
    terms = Terms(how="open", hourly=2, hourly_of_address=100)
    here, there = Broker(network, terms), Broker(network, terms)
    here.answer("register", name="one")
    here.answer("remove", name="one")
    here.answer("register", name="two")
    network.tell()
    refused = there.answer("register", name="three")
    assert "last hour" in refused.problem and refused.code == 0x97
    network.wait(3_601)
    assert there.answer("register", name="three").became == "active"


def test_a_full_table_takes_nobody_and_keeps_those_it_has(network: Network) -> None:
    broker = Broker(network, Terms(how="open", accounts_max=2))
    assert broker.answer("register", name="one").became == "active"
    assert broker.answer("register", name="two").became == "active"
    refused = broker.answer("register", name="three")
    assert "no room" in refused.problem and refused.code == 0x97
    assert len(network.keys()) == 2 and broker.hashes == 2
    assert broker.answer("password", name="one", new="another password").became == "active"


def test_those_who_register_at_once_do_not_overfill_the_table(network: Network) -> None:
    broker = Broker(network, Terms(how="open", accounts_max=2))
    broker.held = []
    numbers = [broker.ask("register", name=f"n{each}") for each in range(4)]
    broker.let_go()
    assert [broker.replies[each].code for each in numbers] == [0, 0, 0x97, 0x97]


def test_a_broker_has_no_more_requests_under_way_than_it_may(network: Network) -> None:
    broker = Broker(network)
    broker.held = []
    for each in range(UNDER_WAY_MAX + 1):
        broker.ask("register", f"192.0.2.{each}", name=f"n{each}")
    refused = [each for each in broker.held if isinstance(each, Reply)]
    assert [each.code for each in refused] == [0x9F] and len(broker.machine) == UNDER_WAY_MAX


def test_a_crowd_at_the_hashing_threads_is_told_to_come_again(network: Network) -> None:
    broker = Broker(network)
    broker.busy = "too many clients wait"
    assert broker.answer("register").problem == "too many clients wait"
    assert broker.answer("remove").code == 0x9F
    assert not len(broker.machine)


def test_requests_wait_for_the_accounts_to_be_known(network: Network) -> None:
    broker = Broker(network)
    broker.machine.accounts.ready = False
    assert broker.answer("register").problem == AWAY
    assert not network.keys()


# ── the store ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (StoreUnavailable("put", "no server"), "cannot be reached"),
        (OutcomeUnknown("put", 5.0), "not certain"),
        (StoreFull("put", "max_bytes"), "no room"),
    ],
)
def test_a_store_that_is_away_is_said_and_leaves_nothing_under_way(
    network: Network, failure: TocsinError, words: str
) -> None:
    broker = Broker(network)
    broker.answer("register", name="bob")
    network.failure = failure
    for verb, more in (
        ("register", {}),
        ("password", {"name": "bob", "new": "another one"}),
        ("remove", {"name": "bob"}),
    ):
        assert words in broker.answer(verb, **more).problem
    assert not len(broker.machine)
    network.failure = None
    assert broker.answer("register").became == "active"


# ── invitations ─────────────────────────────────────────────────────────────────────────────────────────────

INVITED = Terms(how="invited")


def test_an_invitation_makes_one_account(network: Network) -> None:
    broker = Broker(network, INVITED)
    network.invite("token")
    assert broker.answer("register", invitation="token").became == "active"
    assert broker.answer("register", name="bob", invitation="token").problem == INVITATION_WRONG
    assert len(network.keys()) == 1


def test_an_invitation_used_at_two_brokers_at_once_makes_one_account(network: Network) -> None:
    here, there = Broker(network, INVITED), Broker(network, INVITED)
    network.invite("token")
    here.held = []
    first = here.ask("register", invitation="token")  # it waits for its read
    second = there.ask("register", name="bob", invitation="token")
    here.let_go()
    assert there.replies[second].became == "active"
    assert here.replies[first].problem == INVITATION_WRONG
    assert len(network.keys()) == 1


def test_an_invitation_read_twice_is_taken_once(network: Network) -> None:
    here, there = Broker(network, INVITED), Broker(network, INVITED)
    network.invite("token")
    hash_later(here)
    first = here.ask("register", invitation="token")
    second = there.ask("register", name="bob", invitation="token")
    here.let_go()
    assert there.replies[second].became == "active"
    assert here.replies[first].problem == INVITATION_WRONG


def test_without_an_invitation_nothing_is_said_of_names(network: Network) -> None:
    broker = Broker(network, INVITED)
    network.invite("token")
    broker.answer("register", invitation="token")
    for name in ("ann", "bob", "admin"):
        assert "an invitation is needed" in broker.answer("register", name=name).problem
        assert broker.answer("register", name=name, invitation="wrong").problem == INVITATION_WRONG


def test_an_invitation_that_ended_is_refused(network: Network) -> None:
    broker = Broker(network, INVITED)
    network.invite("token", lasts_s=10)
    network.wait(11)
    assert broker.answer("register", invitation="token").problem == INVITATION_WRONG


def test_an_invitation_outlives_a_name_that_is_taken(network: Network) -> None:
    here, there = Broker(network, INVITED), Broker(network, INVITED)
    network.invite("one")
    network.invite("two")
    hash_later(here)
    first = here.ask("register", invitation="one")
    there.answer("register", invitation="two")
    here.let_go()
    assert here.replies[first].problem == TAKEN
    assert here.answer("register", name="bob", invitation="one").became == "active"
    assert not network.keys("i.")


def test_an_invitation_is_lost_rather_than_used_twice(network: Network) -> None:
    broker = Broker(network, INVITED)
    network.invite("token")
    writes = fail_at(broker, PutKey, StoreUnavailable("put", "no server"))
    refused = broker.answer("register", invitation="token")
    assert writes and "the invitation is lost" in refused.problem
    assert not network.keys() and not network.keys("i.")


# ── approval ────────────────────────────────────────────────────────────────────────────────────────────────


def test_whoever_waits_for_approval_is_no_user_yet(network: Network) -> None:
    broker = Broker(network, Terms(how="approved"))
    assert broker.answer("register").became == "waiting"
    known = broker.machine.accounts.find("~ann")
    assert known is not None and known.account.state == "waiting"
    assert approved(known.account).state == "active"


def test_a_waiting_account_can_be_withdrawn_and_leaves_its_name(network: Network) -> None:
    broker = Broker(network, Terms(how="approved"))
    broker.answer("register")
    assert broker.answer("remove").became == "removed"
    network.tell()
    assert not network.keys()
    assert broker.answer("register", password="another one").became == "waiting"


# ── one's own account ───────────────────────────────────────────────────────────────────────────────────────


def test_a_changed_password_sends_the_users_clients_away_everywhere(network: Network) -> None:
    here, there = Broker(network), Broker(network)
    here.answer("register")
    network.tell()
    assert there.answer("password", new="another password").became == "active"
    network.tell()
    assert here.gone == there.gone == {"~ann"}
    assert here.answer("remove").problem == WRONG
    assert here.answer("remove", password="another password").became == "removed"


def test_a_wrong_password_and_a_name_that_is_not_there_read_alike(network: Network) -> None:
    broker = Broker(network)
    broker.answer("register")
    wrong = broker.answer("remove", password="a wrong password")
    nobody = broker.answer("remove", name="nobody", password="a wrong password")
    assert wrong.problem == nobody.problem == WRONG and wrong.code == nobody.code
    assert network.keys()


def test_a_removed_name_stays_taken_while_sessions_of_it_may_be_kept(network: Network) -> None:
    broker = Broker(network, Terms(how="open", removed_us=1_000_000_000, unused_us=60_000_000))
    broker.answer("register")
    broker.post(LoggedIn(name="~ann"))
    assert broker.answer("remove").became == "removed"
    assert broker.gone == {"~ann"}
    assert broker.answer("register").problem == TAKEN
    network.wait(1_001)
    assert broker.answer("register").became == "active"


def test_two_changes_at_once_do_not_undo_each_other(network: Network) -> None:
    here, there = Broker(network), Broker(network)
    here.answer("register")
    network.tell()
    hash_later(here)
    first = here.ask("password", new="the first password")
    assert there.answer("remove").became == "removed"
    here.let_go()
    assert "somebody else" in here.replies[first].problem
    network.tell()
    assert here.machine.accounts.hash_of("~ann") is None


# ── accounts that nobody uses ───────────────────────────────────────────────────────────────────────────────


def test_an_account_goes_that_nobody_used_and_a_used_one_stays(network: Network) -> None:
    broker = Broker(network, Terms(how="open", unused_us=60_000_000))
    broker.answer("register", name="used")
    broker.answer("register", name="unused")
    broker.post(LoggedIn(name="~used"))
    network.wait(61)
    assert broker.machine.accounts.takes("used") and not broker.machine.accounts.takes("unused")
    assert "~unused" in broker.gone and "~used" not in broker.gone


def test_a_log_in_while_the_store_is_away_keeps_the_account(network: Network) -> None:
    broker = Broker(network, Terms(how="open", unused_us=60_000_000))
    broker.answer("register")
    network.failure = StoreUnavailable("put", "no server")
    broker.post(LoggedIn(name="~ann"))
    broker.post(LoggedIn(name="~ann"))
    assert [each.delay_us for each in broker.timers] == [AGAIN_US]
    network.failure = None
    broker.post(TimerFired(name="again"))
    network.wait(61)
    assert broker.machine.accounts.takes("ann")


def test_a_used_account_is_written_once(network: Network) -> None:
    here, there = Broker(network), Broker(network)
    here.answer("register")
    network.tell()
    for broker in (here, there, here):
        broker.post(LoggedIn(name="~ann"))
        network.tell()
    assert network.state.revision == 2
    cell = network.state.get("u.ann", network.now_us)
    assert cell is not None and ACCOUNT.read(cell.value).used


def test_the_terms_are_those_of_the_settings() -> None:
    terms = terms_of(Settings())
    assert terms.how == "off" and terms.unused_us == 30 * 86_400_000_000
    assert terms.removed_us == Settings().limits.session_expiry_max_s * 1_000_000


# ── help ────────────────────────────────────────────────────────────────────────────────────────────────────


def hash_later(broker: Broker) -> None:
    """Let the broker's next hash wait until ``let_go``."""
    carry_out: Callable[[Effect], None] = broker.carry_out

    def wait(effect: Effect) -> None:
        if isinstance(effect, HashPassword) and broker.held is None and not waited:
            waited.append(effect)
            broker.held = [effect]
        else:
            carry_out(effect)

    waited: list[Effect] = []
    broker.carry_out = wait  # type: ignore[method-assign]


def fail_at(broker: Broker, kind: type[PutKey], error: TocsinError) -> list[Effect]:
    """Let the store fail for requests of one kind."""
    carry_out: Callable[[Effect], None] = broker.carry_out
    failed: list[Effect] = []

    def fail(effect: Any) -> None:
        if isinstance(effect, kind):
            failed.append(effect)
            broker.post(StoreFailed(request=effect.request, error=error))
        else:
            carry_out(effect)

    broker.carry_out = fail  # type: ignore[method-assign]
    return failed
