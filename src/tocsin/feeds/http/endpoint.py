"""The HTTP endpoint of feeds: ``POST /feeds/NAME`` with records, answered with 202 once the log of feeds has them.

**Identity.** A client certificate's name, or the user of ``Authorization: Basic`` whose password the users' file has;
an anonymous client is admitted from where ``access.anonymous`` allows it. Where there are rules, the sender needs to be
allowed to publish to the topic ``$feeds/NAME``. Requests of web pages (with an ``Origin``) are refused: a page
that is open in somebody's browser must not write into the datasets of the machine that it is on.

**Repeats.** With a header ``Idempotency-Key`` the same request again is not taken twice, whatever was killed in between
(``feeds.http.idempotency``). All records of a request are one append: all of them are taken, or none.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import ssl
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from tocsin.config import Feeds
from tocsin.core.access.admission import is_loopback
from tocsin.core.access.rights import Who
from tocsin.errors import OperatorError, StoreFull, TocsinError
from tocsin.feeds.agents.agent import Work
from tocsin.feeds.http.idempotency import IdempotentAppends
from tocsin.feeds.http.intake import KEY_MAX_BYTES, BodyInvalid, packed, read_records, request_id, sender_id
from tocsin.feeds.http.server import RETRY_AFTER_S, Answer, Asked, Bounds, HttpServer, busy
from tocsin.model.catalogue import HttpSource
from tocsin.model.channel_names import ChannelNames
from tocsin.model.feeding import RECORDS
from tocsin.ports import Log, Record, Table
from tocsin.runtime.faults.kill_points import AFTER_APPEND, reach
from tocsin.runtime.machines.tasks import Ending
from tocsin.runtime.security.files import Guard
from tocsin.runtime.security.users import UsersBusy

TOPIC_PREFIX: Final = "$feeds/"  # of what rules say about feeds
_PATH: Final = re.compile(r"/feeds/([A-Za-z][A-Za-z0-9_]{0,63})", re.ASCII)
_ENCODINGS: Final = (None, b"identity")
NO_FEED: Final = Answer(404, {"error": "there is no such feed here; POST to /feeds/NAME of a feed FROM HTTP"})


class HttpEndpoint:
    """Serves ``POST /feeds/NAME`` over HTTP. ``find`` gives the work of a feed, by its name."""

    def __init__(
        self,
        settings: Feeds,
        guard: Guard,
        places: ChannelNames,
        log: Log,
        cells: Table,
        find: Callable[[str], Work | None],
    ) -> None:
        self._settings = settings
        self._guard = guard
        self._places = places
        self._log = log
        self._find = find
        self.ending = Ending()  # fails when nobody can be accepted any more
        self._server = HttpServer(
            self._judge,
            self._act,
            Bounds(
                settings.body_max_bytes,
                max(settings.waiting_max_bytes, settings.body_max_bytes),
                settings.connections_max,
                settings.connections_per_address,
                settings.request_deadline_s,
            ),
            self.ending.fail,
            self._name_of,
        )
        self._requests = IdempotentAppends(log, cells)
        self.addresses: list[str] = []  # where it listens

    def _name_of(self, tls: Any) -> str | None:
        """The user that a client certificate names, asked for each request: a connection may last."""
        certificates = self._guard.certificates
        shown = None if tls is None or certificates is None else certificates.client(tls)
        if shown is None or certificates is None or certificates.problem(shown) is not None:
            return None
        return shown.name

    async def open(self) -> None:
        """Listen; ``OperatorError`` if that is not possible."""
        await self._requests.open()
        try:
            if self._settings.http_port >= 0:
                await self._listen("http", self._settings.http_port)
            if self._settings.https_port >= 0:
                if self._guard.certificates is None:
                    raise OperatorError(
                        "feeds.https_port needs a certificate",
                        "Set tls.certificate and tls.key, or leave it out",
                    )
                await self._listen("https", self._settings.https_port, self._guard.certificates.context)
        except OperatorError:
            await self.close()
            raise

    async def _listen(self, scheme: str, port: int, context: ssl.SSLContext | None = None) -> None:
        host = self._settings.http_host
        chosen = await self._server.listen(host, port, f"feeds.{scheme}_port", context)
        self.addresses.append(f"{scheme}://{f'[{host}]' if ':' in host else host}:{chosen}")

    async def keep(self) -> None:
        """Write down which requests were taken, until cancelled."""
        await self._requests.keep()

    async def close(self) -> None:
        await self._server.close()

    # ── the head ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _judge(self, asked: Asked) -> Answer | str:
        name = _feed(asked)
        if name is None:
            return NO_FEED
        if asked.method != "POST":
            return Answer(405, {"error": f"{asked.method} is not for feeds; use POST"}, (("Allow", "POST"),))
        if asked.header(b"origin") is not None:
            return Answer(403, {"error": "requests of web pages are not taken; send it from a program"})
        if asked.header(b"content-encoding") not in _ENCODINGS:
            return Answer(415, {"error": "compressed bodies are not taken; send it as it is"})
        key = asked.header(b"idempotency-key")
        if key is not None and not 1 <= len(key) <= KEY_MAX_BYTES:
            return Answer(400, {"error": f"an Idempotency-Key has 1 to {KEY_MAX_BYTES} bytes"})
        sender = await self._sender(asked, name)
        # Last: who may not write to a feed is not told whether there is one.
        return NO_FEED if isinstance(sender, str) and self._work(name) is None else sender

    def _work(self, name: str | None) -> Work | None:
        work = None if name is None else self._find(name)
        return work if work is not None and isinstance(work.feed.source, HttpSource) else None

    async def _sender(self, asked: Asked, feed: str) -> Answer | str:
        """The sender's name, if it may write to the feed; else why it may not."""
        given = _basic(asked)
        try:
            user = await self._user(asked, given)
        except UsersBusy as error:
            return busy(str(error), error.turned.after_s)
        if user is None:
            problem = "the user name or the password is wrong" if given else "say who you are"
            return Answer(
                401,
                {"error": f"{problem}; send Authorization: Basic with a user of access.users"},
                (("WWW-Authenticate", 'Basic realm="tocsin feeds", charset="UTF-8"'),),
            )
        who = Who(user, "http")
        if self._guard.access.refusal(who) or not self._guard.access.may_publish(
            who, TOPIC_PREFIX + feed.lower()
        ):
            shown = user or "anonymous"
            return Answer(
                403, {"error": f"{shown} may not publish to {TOPIC_PREFIX}{feed.lower()} (access.rules)"}
            )
        return user

    async def _user(self, asked: Asked, given: tuple[str, bytes] | None) -> str | None:
        """The sender's name, empty if it has proven none and need not; None if it stays out."""
        if asked.certificate_name is not None:
            return asked.certificate_name
        users, anonymous = self._guard.users, self._guard.policy.anonymous
        if given is not None and users is not None:
            return given[0] if await users.verify(*given, asked.address) else None
        if anonymous == "always" or (anonymous == "loopback" and is_loopback(asked.address)):
            return ""
        return None

    # ── the body ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _act(self, asked: Asked, user: str, body: bytes) -> Answer:
        work = self._work(_feed(asked))
        if work is None:
            return Answer(404, {"error": "the feed was dropped just now"})
        try:
            records = read_records(body)
            packs = packed(records)
        except BodyInvalid as error:
            return Answer(400, {"error": str(error)})
        key = asked.header(b"idempotency-key")
        named = secrets.token_bytes(16) if key is None else key
        said = _basic(
            asked
        )  # a name that nobody had to prove tells requests apart, and has no share of its own
        request = request_id(user or (said[0] if said else ""), named, body)
        prefix = f"{work.outlet.prefix}.http.{sender_id(user)}{request}"
        subject = self._places.feed_subject(work.feed.name)
        batch = [
            Record(subject, RECORDS.seal(each.payload), f"{prefix}.{number}")
            for number, each in enumerate(packs)
        ]
        try:
            if key is None:
                await self._log.append(batch)
            else:
                await self._requests.append_once(prefix, batch)
        except TocsinError as error:
            work.counts.error = str(error)
            structlog.get_logger().warning(
                "records wait for the store", feed=work.feed.name, problem=str(error)
            )
            return Answer(
                507 if isinstance(error, StoreFull) else 503,
                {"error": f"the store did not take it: {error}"},
                (("Retry-After", str(RETRY_AFTER_S)),),
            )
        reach(AFTER_APPEND)
        work.counts.add(len(records), len(body))
        return Answer(202, {"feed": work.feed.name, "records": len(records)})


def _feed(asked: Asked) -> str | None:
    """The name of the feed that a request is for; None if it is for none."""
    try:
        found = _PATH.fullmatch(urlsplit(asked.target).path)
    except ValueError:  # no URL, such as //[
        return None
    return found[1] if found else None


def _basic(asked: Asked) -> tuple[str, bytes] | None:
    """Name and password of ``Authorization: Basic``; a name that nobody can have if it cannot be read."""
    given = asked.header(b"authorization")
    if given is None:
        return None
    scheme, _, encoded = given.partition(b" ")
    try:
        if scheme.lower() == b"basic":
            name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
            if colon:
                return name.decode(), password
    except (binascii.Error, UnicodeDecodeError):
        pass
    return "", b""
