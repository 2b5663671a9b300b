"""Registration: people and machines make, change and remove accounts of their own, over MQTT.

A client connects with the user name ``$account``. Such a connection has no session and does one thing
(``core.session.machine``): it publishes requests, JSON objects, at QoS 1, and gets an answer to each.

    $account/register    {"name": "ann", "password": "…"}        with "invitation": "…", where one is needed
    $account/password    {"name": "~ann", "password": "…", "new": "…"}
    $account/remove      {"name": "~ann", "password": "…"}

    {"name": "~ann", "state": "active"}    or "waiting", "removed"        {"error": "…", "code": 135}

The way of a request. Whatever is refused early costs neither a hash nor a write:

    register   bounds ─► (invitation read) ─► name free? ─► hash ─► (invitation taken) ─► written where no cell is
    password   bounds ─► old password checked ─► hash ─► written over the cell as it was known
    remove     bounds ─► password checked ─► written: removed; or deleted, if it waits for approval

Of two brokers that write one name at once, the store lets one through; the other gives the invitation back.

Bounds: requests of one address in an hour; requests that a broker has under way; new accounts in an hour and accounts
in all, for the network (by the accounts themselves: each says when it was made). Brokers that register at the same
moment may go over these two by what they have under way.

Transitions of ``Registration``:

    *  Asked, Hashed, Checked, Stored, StoreFailed, Watched, LoggedIn, TimerFired

Invariants
- Each ``Asked`` is answered by one ``Reply``, whatever the store does, unless the store never answers.
- An invitation is taken before its account is written: no token makes two accounts.
- No effect that is written down (``Note``, ``Say``) has a password, a hash or a token in it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final, Literal

import msgspec

from tocsin.config import Settings
from tocsin.core.access.accounts import (
    ACCOUNT,
    INVITATION,
    PASSWORD_MIN_BYTES,
    RESERVED,
    Account,
    Accounts,
    Invitation,
    Known,
    account_key,
    account_name,
    invitation_key,
    name_problem,
)
from tocsin.core.machine import (
    DeleteKey,
    Effect,
    Event,
    GetKey,
    OneState,
    PutKey,
    SetTimer,
    Stored,
    StoreFailed,
    Table,
    TableMachine,
    TimerFired,
    Watched,
)
from tocsin.core.rates import Buckets
from tocsin.errors import Conflict, OutcomeUnknown, StoreFull
from tocsin.model.versions import UNREADABLE, Stated
from tocsin.ports import Cell

ACCOUNTS: Final = "accounts"  # the table
TOPICS: Final = "$account/"
REQUEST_MAX_BYTES: Final = 4_096  # a name, two passwords and a token, and room for escapes
PASSWORD_MAX_BYTES: Final = 1_024  # as of every user (runtime.security.users)
TOKEN_MAX_CHARS: Final = 128
UNDER_WAY_MAX: Final = 64  # requests of one broker; each waits for at most two hashes
ADDRESSES_MAX: Final = 10_000  # whose rate is remembered; at about 300 B each, 3 MB
HOUR_S: Final = 3_600
AGAIN_US: Final = 5_000_000  # before it is written again that an account is used
REQUEST: Final = Stated("a request about an account")

PAYLOAD_INVALID: Final = 0x99
NOT_AUTHORIZED: Final = 0x87
QUOTA_EXCEEDED: Final = 0x97
RATE_EXCEEDED: Final = 0x9F
UNSPECIFIED: Final = 0x80

Verb = Literal["register", "password", "remove"]

WRONG: Final = "the user name or the password is wrong"
AWAY: Final = "the store cannot be reached just now; try again in a while"
INVITATION_WRONG: Final = "this invitation is not known, was used or has ended: ask the operator for another"
TAKEN: Final = "this name cannot be had; choose another"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms on which a network registers."""

    how: Literal["off", "closed", "open", "invited", "approved"] = "off"
    accounts_max: int = 1_000
    hourly: int = 100  # new accounts of the network in an hour
    hourly_of_address: int = 20  # requests of one address, at one broker
    unused_us: int = 30 * 86_400_000_000  # until an account that nobody used is gone
    removed_us: int = (
        604_800_000_000  # until a removed name is free: as long as a session of its user may be kept
    )


def terms_of(settings: Settings) -> Terms:
    """The terms of a network, as its settings say."""
    access = settings.access
    return Terms(
        how=access.registration,
        accounts_max=access.registered_max,
        hourly=access.registered_hourly,
        hourly_of_address=access.registered_address_hourly,
        unused_us=access.registered_unused_days * 86_400_000_000,
        removed_us=settings.limits.session_expiry_max_s * 1_000_000,
    )


class RequestInvalid(Exception):
    """A request that cannot be understood."""


class AccountChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON object of a request."""

    name: str
    password: str
    new: str | None = None
    invitation: str | None = None
    reply: str | None = None  # the topic of the answer, for clients of MQTT 3.1.1
    v: int | None = None


_DECODER: Final = msgspec.json.Decoder(AccountChange)


def read_request(topic: str, payload: bytes) -> tuple[Verb, AccountChange]:
    """Read what a client published to ``$account/…``. Raises ``RequestInvalid``."""
    verb = topic.removeprefix(TOPICS)
    if verb not in ("register", "password", "remove"):
        raise RequestInvalid(f"publish to {TOPICS}register, {TOPICS}password or {TOPICS}remove")
    if len(payload) > REQUEST_MAX_BYTES:
        raise RequestInvalid(f"a request has at most {REQUEST_MAX_BYTES} bytes; this one has {len(payload)}")
    try:
        request = _DECODER.decode(payload)
        REQUEST.check(None if request.v is None else str(request.v))
    except (*UNREADABLE, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        example = '{"name": "ann", "password": "…"}'
        raise RequestInvalid(f"a request is a JSON object such as {example}: {error}") from None
    if (verb == "password") != (request.new is not None):
        raise RequestInvalid('a new password ("new") belongs to $account/password, and nowhere else')
    chosen = request.password if request.new is None else request.new
    if verb != "remove" and (problem := password_problem(request.name, chosen)):
        raise RequestInvalid(problem)
    if len(request.invitation or "") > TOKEN_MAX_CHARS:
        raise RequestInvalid(f"an invitation has at most {TOKEN_MAX_CHARS} characters")
    return verb, request  # type: ignore[return-value]


def password_problem(name: str, password: str) -> str | None:
    """Why nobody may choose this password."""
    size = len(password.encode())
    if not PASSWORD_MIN_BYTES <= size <= PASSWORD_MAX_BYTES:
        return f"a password has {PASSWORD_MIN_BYTES} to {PASSWORD_MAX_BYTES} bytes; this one has {size}"
    if password.lower() in (name.lower(), account_name(name).lower()):
        return "the password must not be the name"
    return None


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────


class Asked(Event, frozen=True, kw_only=True):
    """A client asks. ``number`` differs for every request; ``source`` is where it comes from, empty: this machine."""

    number: int
    topic: str
    payload: bytes
    source: str
    wall_s: int


class Hashed(Event, frozen=True, kw_only=True):
    """A password is hashed, or (``problem``) was not looked at."""

    number: int
    hashed: str = ""
    problem: str = ""


class Checked(Event, frozen=True, kw_only=True):
    """A password was checked, or (``problem``) was not looked at."""

    number: int
    good: bool = False
    problem: str = ""


class LoggedIn(Event, frozen=True, kw_only=True):
    """Somebody has logged in with this account."""

    name: str


# ── effects ─────────────────────────────────────────────────────────────────────────────────────────────────


class HashPassword(Effect, frozen=True, kw_only=True):
    """Hash this password in its turn → ``Hashed``."""

    number: int
    name: str
    password: bytes


class CheckPassword(Effect, frozen=True, kw_only=True):
    """Check this user's password in its turn → ``Checked``."""

    number: int
    name: str
    password: bytes


class Reply(Effect, frozen=True, kw_only=True):
    """Answer a request: it is done, or (``problem``) refused."""

    number: int
    name: str = ""
    became: str = ""  # active, waiting, removed
    problem: str = ""
    code: int = 0


class Note(Effect, frozen=True, kw_only=True):
    """Write a line of the audit log."""

    number: int
    name: str
    action: str
    outcome: str
    problem: str = ""


class UsersChanged(Effect, frozen=True, kw_only=True):
    """These users are gone, or have another password: their clients have to go."""

    names: frozenset[str]


# ── the machine ─────────────────────────────────────────────────────────────────────────────────────────────


class RegistrationTimer(StrEnum):
    """The timers of registration."""

    AGAIN = "again"  # what could not be written of accounts that are used


Step = Literal["invitation", "check", "hash", "take", "write", "give back"]
ACTIONS: Final[dict[Verb, str]] = {
    "register": "register",
    "password": "change own password",
    "remove": "remove own account",
}


class _Job:
    """One request that is under way."""

    __slots__ = ("hashed", "invitation", "known", "name", "number", "request", "step", "verb", "wall_s")

    def __init__(self, asked: Asked, verb: Verb, request: AccountChange) -> None:
        self.number = asked.number
        self.verb = verb
        self.request = request
        self.name = account_name(request.name)
        self.wall_s = asked.wall_s
        self.step: Step = "hash"
        self.hashed = ""
        self.invitation: Cell | None = None
        self.known: Known | None = None  # the account as it was when its password was checked


class Registration(TableMachine):
    """The requests of one broker's clients about accounts, and all accounts of the network."""

    timers = RegistrationTimer
    state = OneState.ONLY

    def __init__(self, terms: Terms, accounts: Accounts) -> None:
        self.accounts = accounts
        self._terms = terms
        self._jobs: dict[int, _Job] = {}
        rate = terms.hourly_of_address  # a request costs as many tokens as an hour has seconds
        self._rates: Buckets[str] = Buckets(rate, rate * HOUR_S, ADDRESSES_MAX)
        self._unmarked: dict[str, bool] = {}  # used accounts of which it is not written; whether it is being

    def __len__(self) -> int:
        """How many requests are under way."""
        return len(self._jobs)

    # ── a request comes ─────────────────────────────────────────────────────────────────────────────────────

    def _asked(self, event: Asked, now_us: int) -> list[Effect]:
        try:
            verb, request = read_request(event.topic, event.payload)
        except RequestInvalid as error:
            return [Reply(number=event.number, problem=str(error), code=PAYLOAD_INVALID)]
        if refusal := self._bounded(event, verb, now_us):
            return [refusal]
        job = _Job(event, verb, request)
        if verb != "register":
            job.step = "check"
            self._jobs[job.number] = job
            job.known = self.accounts.find(job.name)
            return [
                CheckPassword(number=job.number, name=job.name, password=request.password.encode()),
            ]
        if problem := name_problem(request.name):
            return [Reply(number=event.number, problem=problem, code=PAYLOAD_INVALID)]
        self._jobs[job.number] = job
        if self._terms.how != "invited":
            return self._hash(job)
        if not request.invitation:
            problem = 'an invitation is needed ("invitation"): ask the operator for one'
            return self._refuse(job, problem, NOT_AUTHORIZED)
        job.step = "invitation"
        key = invitation_key(request.invitation)
        return [GetKey(request=f"{job.number}", table=ACCOUNTS, key=key, fresh=True)]

    def _bounded(self, event: Asked, verb: Verb, now_us: int) -> Reply | None:
        """Why nothing is done for this request; None if it goes on."""

        def refused(problem: str, code: int) -> Reply:
            return Reply(number=event.number, problem=problem, code=code)

        if verb == "register" and self._terms.how in ("off", "closed"):
            return refused("nobody can register here at present: ask the operator", NOT_AUTHORIZED)
        if len(self._jobs) >= UNDER_WAY_MAX:
            return refused("too many requests are under way; try again in a while", RATE_EXCEEDED)
        if event.source and not self._rates.try_take(event.source, now_us, HOUR_S):
            rate = self._terms.hourly_of_address
            return refused(
                f"more than {rate} requests in an hour came from your address; try later", RATE_EXCEEDED
            )
        if not self.accounts.ready:
            return refused(AWAY, UNSPECIFIED)
        return None

    def _hash(self, job: _Job) -> list[Effect]:
        """The password that was chosen is to be hashed, if there is room for an account of that name."""
        if job.verb == "register" and (problem := self._crowded(job) or self._taken(job)):
            return self._refuse(job, problem, NOT_AUTHORIZED if problem == TAKEN else QUOTA_EXCEEDED)
        job.step = "hash"
        chosen = job.request.new or job.request.password
        return [HashPassword(number=job.number, name=job.name, password=chosen.encode())]

    def _taken(self, job: _Job) -> str:
        return TAKEN if job.name[1:] in RESERVED or self.accounts.takes(job.name) else ""

    def _crowded(self, job: _Job) -> str:
        """Why the network takes no more accounts just now."""
        making = sum(each.verb == "register" for each in self._jobs.values()) - 1
        if len(self.accounts) + making >= self._terms.accounts_max:
            return "this network has no room for more accounts: ask the operator"
        if self.accounts.made_since(job.wall_s - HOUR_S) + making >= self._terms.hourly:
            return "too many have registered in the last hour; try again in an hour"
        return ""

    # ── passwords ───────────────────────────────────────────────────────────────────────────────────────────

    def _hashed(self, event: Hashed, now_us: int) -> list[Effect]:
        job = self._jobs.get(event.number)
        if job is None or job.step != "hash":
            return []
        if event.problem:
            return self._refuse(job, event.problem, RATE_EXCEEDED)
        job.hashed = event.hashed
        if job.invitation is None:
            return self._write(job)
        job.step = "take"
        cell = job.invitation
        return [DeleteKey(request=f"{job.number}", table=ACCOUNTS, key=cell.key, revision=cell.revision)]

    def _checked(self, event: Checked, now_us: int) -> list[Effect]:
        job = self._jobs.get(event.number)
        if job is None or job.step != "check":
            return []
        if event.problem:
            return self._refuse(job, event.problem, RATE_EXCEEDED)
        if not event.good or job.known is None:  # or it is a user of the operator's, who changes it
            return self._refuse(job, WRONG, NOT_AUTHORIZED)
        return self._hash(job) if job.verb == "password" else self._write(job)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, job: _Job) -> list[Effect]:
        job.step = "write"
        request, key = f"{job.number}", account_key(job.name)
        account = self._result(job)
        if account is None:
            assert job.known is not None, "only what is there is removed"
            return [DeleteKey(request=request, table=ACCOUNTS, key=key, revision=job.known.revision)]
        revision = 0 if job.known is None else job.known.revision
        return [
            PutKey(
                request=request,
                table=ACCOUNTS,
                key=key,
                value=ACCOUNT.write(account),
                revision=revision,
                ttl_us=lasting_us(account, self._terms),
            )
        ]

    def _result(self, job: _Job) -> Account | None:
        """The account that a request makes of what there is; None: nothing is left."""
        if job.known is None:
            how = self._terms.how
            assert how != "off" and how != "closed", "nobody registers then"
            return Account(
                job.name, job.hashed, how, job.wall_s, "waiting" if how == "approved" else "active"
            )
        if job.verb == "password":
            return msgspec.structs.replace(job.known.account, hashed=job.hashed)
        return removed(job.known.account)

    def _stored(self, event: Stored, now_us: int) -> list[Effect]:
        if event.request.startswith("used:"):
            return self._marked(event)
        job = self._jobs.get(int(event.request))
        if job is None:
            return []
        if job.step == "invitation":
            return self._invited(job, event.value)
        if job.step == "take":
            return self._write(job)
        if job.step == "give back":
            return self._refuse(job, TAKEN, NOT_AUTHORIZED)
        return self._written(job, event)

    def _invited(self, job: _Job, cell: Cell | None) -> list[Effect]:
        try:
            invitation = None if cell is None else INVITATION.read(cell.value)
        except UNREADABLE:
            invitation = None
        if invitation is None or invitation.ends_s <= job.wall_s:
            return self._refuse(job, INVITATION_WRONG, NOT_AUTHORIZED)
        job.invitation = cell
        return self._hash(job)

    def _written(self, job: _Job, event: Stored) -> list[Effect]:
        account = self._result(job)
        if account is None:
            became: str = "removed"
            changed = frozenset((job.name,))
        else:
            changed = self.accounts.learn(account, event.value)
            became = account.state
        effects = self._done(job, became)
        return [*effects, UsersChanged(names=changed)] if changed else effects

    def _store_failed(self, event: StoreFailed, now_us: int) -> list[Effect]:
        if event.request.startswith("used:"):
            return self._not_marked(event)
        job = self._jobs.get(int(event.request))
        if job is None:
            return []
        error = event.error
        if job.step == "take" and isinstance(error, Conflict):
            return self._refuse(job, INVITATION_WRONG, NOT_AUTHORIZED)  # another request was quicker
        if job.step == "give back":
            return self._refuse(job, f"{TAKEN}; the invitation is lost, ask for another", NOT_AUTHORIZED)
        if isinstance(error, OutcomeUnknown):
            problem = "it is not certain whether this was done: try whether you can log in, or ask again"
            return self._refuse(job, problem, UNSPECIFIED)
        if job.step != "write":
            return self._refuse(job, AWAY, UNSPECIFIED)
        if isinstance(error, Conflict) and job.known is not None:
            problem = "the account was changed by somebody else at the same moment; try again"
            return self._refuse(job, problem, UNSPECIFIED)
        problem, code = AWAY, UNSPECIFIED
        if isinstance(error, Conflict):
            problem, code = TAKEN, NOT_AUTHORIZED
        elif isinstance(error, StoreFull):
            problem, code = "the store has no room for more accounts: ask the operator", QUOTA_EXCEEDED
        if job.invitation is None or not isinstance(error, Conflict):
            lost = "; the invitation is lost, ask for another" if job.invitation is not None else ""
            return self._refuse(job, problem + lost, code)
        return self._give_back(job, job.invitation)

    def _give_back(self, job: _Job, cell: Cell) -> list[Effect]:
        """Another broker has given the name to somebody else: the invitation counts again, for as long as it did."""
        job.step = "give back"
        left_s = INVITATION.read(cell.value).ends_s - job.wall_s
        return [
            PutKey(
                request=f"{job.number}",
                table=ACCOUNTS,
                key=cell.key,
                value=cell.value,
                revision=0,
                ttl_us=max(1, left_s) * 1_000_000,
            )
        ]

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────

    def _done(self, job: _Job, became: str) -> list[Effect]:
        del self._jobs[job.number]
        return [
            Note(number=job.number, name=job.name, action=ACTIONS[job.verb], outcome="done"),
            Reply(number=job.number, name=job.name, became=became),
        ]

    def _refuse(self, job: _Job, problem: str, code: int) -> list[Effect]:
        del self._jobs[job.number]
        return [
            Note(
                number=job.number,
                name=job.name,
                action=ACTIONS[job.verb],
                outcome="refused",
                problem=problem,
            ),
            Reply(number=job.number, problem=problem, code=code),
        ]

    # ── what the table says, and who logs in ────────────────────────────────────────────────────────────────

    def _watched(self, event: Watched, now_us: int) -> list[Effect]:
        changed = self.accounts.take(event.change)
        return [UsersChanged(names=changed)] if changed else []

    def _logged_in(self, event: LoggedIn, now_us: int) -> list[Effect]:
        """An account that is used lasts, from its first log-in on."""
        known = self.accounts.find(event.name)
        if known is None or known.account.used or known.account.state != "active":
            return []
        if event.name in self._unmarked:
            return []
        self._unmarked[event.name] = True
        return [self._mark(known)]

    def _mark(self, known: Known) -> PutKey:
        account = msgspec.structs.replace(known.account, used=True)
        return PutKey(
            request=f"used:{account.name}",
            table=ACCOUNTS,
            key=account_key(account.name),
            value=ACCOUNT.write(account),
            revision=known.revision,
        )

    def _marked(self, event: Stored) -> list[Effect]:
        name = event.request.removeprefix("used:")
        self._unmarked.pop(name, None)
        known = self.accounts.find(name)
        if known is not None:
            self.accounts.learn(msgspec.structs.replace(known.account, used=True), event.value)
        return []

    def _not_marked(self, event: StoreFailed) -> list[Effect]:
        waits = any(not writing for writing in self._unmarked.values())
        self._unmarked[event.request.removeprefix("used:")] = False
        return [] if waits else [SetTimer(name=RegistrationTimer.AGAIN, delay_us=AGAIN_US)]

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        return self._mark_again() if event.name == RegistrationTimer.AGAIN else []

    def _mark_again(self) -> list[Effect]:
        effects: list[Effect] = []
        for name, writing in tuple(self._unmarked.items()):
            known = self.accounts.find(name)
            if known is None or known.account.used or known.account.state != "active":
                del self._unmarked[name]
            elif not writing:
                self._unmarked[name] = True
                effects.append(self._mark(known))
        return effects

    table: ClassVar[Table] = {
        ("*", Asked): _asked,
        ("*", Hashed): _hashed,
        ("*", Checked): _checked,
        ("*", Stored): _stored,
        ("*", StoreFailed): _store_failed,
        ("*", Watched): _watched,
        ("*", LoggedIn): _logged_in,
        ("*", TimerFired): _on_timer,
    }


# ── accounts as they become ─────────────────────────────────────────────────────────────────────────────────


def lasting_us(account: Account, terms: Terms) -> int | None:
    """How long a cell lasts, unless it is written again; None: for ever."""
    if account.state == "removed":
        return max(1_000_000, terms.removed_us)
    return None if account.used else terms.unused_us


def removed(account: Account) -> Account | None:
    """An account without its user: the name stays taken, as there may be sessions of it; None: nobody could log in."""
    return (
        None if account.state == "waiting" else msgspec.structs.replace(account, hashed="", state="removed")
    )


def approved(account: Account) -> Account:
    """An account that an operator lets in."""
    return msgspec.structs.replace(account, state="active")


def invitation(now_s: int, lasts_s: int, note: str) -> Invitation:
    return Invitation(now_s, now_s + lasts_s, note)
