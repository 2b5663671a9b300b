"""Rules for settings beyond the bounds of each field: hosts, addresses, and rules over several fields."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from tocsin.config.broker import SCHEMES
from tocsin.config.door import DOOR_SCHEMES
from tocsin.config.membership import LEAST as MEMBERSHIP_LEAST
from tocsin.config.recovery import DELAY, RESOURCES
from tocsin.config.schema import Settings
from tocsin.errors import SettingError

LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
WILDCARDS = frozenset({"0.0.0.0", "::"})  # these listen on every address, so that they clash with all of them


def check(settings: Settings, origins: Mapping[str, str]) -> None:
    """Refuse the first rule that is broken."""
    for rule in (
        _check_nats,
        _check_brokers,
        _check_clusters,
        _check_bridges,
        _check_ports,
        _check_tls,
        _check_access,
        _check_membership,
        _check_routing,
        _check_recovery,
        _check_scoring,
        _check_feeds,
        _check_door,
    ):
        rule(settings, origins)


def is_host(text: str) -> bool:
    """An IP address or a DNS name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        labels = text.removesuffix(".").split(".")
        numeric = labels[-1].isdigit()  # 300.1.2.3 is a mistyped address, not a name
        return len(text) <= 253 and not numeric and all(LABEL.fullmatch(label) for label in labels)
    return True


def _check_host(key: str, host: str, source: str) -> None:
    if not is_host(host):
        raise SettingError(
            key, host, source, "is not a host", "Give an IP address or a host name, such as 127.0.0.1"
        )


def _check_nats(settings: Settings, origins: Mapping[str, str]) -> None:
    nats = settings.nats
    _check_host("nats.host", nats.host, origins["nats.host"])
    for url in nats.urls:
        if (problem := _url_problem(url)) is not None:
            remedy = "Write it as nats://host:port or tls://host:port"
            # The text before an @ may be a secret, and is not repeated.
            raise SettingError("nats.urls", url.rpartition("@")[2], origins["nats.urls"], problem, remedy)
    if any(not ("!" <= character <= "~") for character in nats.token):
        raise SettingError(
            "nats.token",
            "***",
            origins["nats.token"],
            "has a blank, a control character or one beyond ASCII",
            "Use printable ASCII without blanks",
        )
    if nats.key and not nats.certificate:
        raise SettingError(
            "nats.key",
            nats.key,
            origins["nats.key"],
            "there is no certificate for it",
            "Set nats.certificate too",
        )
    if nats.port and nats.port + nats.servers - 1 > 65_535:
        raise SettingError(
            "nats.port",
            nats.port,
            origins["nats.port"],
            f"{nats.servers} servers would take ports beyond 65535",
            f"Choose one of at most {65_536 - nats.servers}",
        )


def _url_problem(
    url: str, schemes: tuple[str, ...] = ("nats", "tls"), what: str = "the address of a NATS server"
) -> str | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "is not an address"
    if parts.username is not None or parts.password is not None:
        return "carries a secret; that belongs into nats.credentials or nats.token"
    if parts.scheme not in schemes or parts.path not in ("", "/") or parts.query or parts.fragment:
        return f"is not {what}"
    if not host or not is_host(host) or not port:
        return "lacks a host or a port"
    return None


def _check_brokers(settings: Settings, origins: Mapping[str, str]) -> None:
    source = origins["brokers"]
    if not settings.brokers:
        raise SettingError(
            "brokers", [], source, "a network needs at least one broker", "Add a [[brokers]] table"
        )
    seen: dict[str, int] = {}
    for index, broker in enumerate(settings.brokers):
        where = f"brokers[{index}]"
        if broker.id in seen:
            raise SettingError(
                f"{where}.id",
                broker.id,
                source,
                f"brokers[{seen[broker.id]}] has the same id",
                "Give each broker its own",
            )
        seen[broker.id] = index
        _check_host(f"{where}.host", broker.host, source)
        for name in ("tls_host", "ws_host", "wss_host", "link_host", "metrics_host"):
            if getattr(broker, name):
                _check_host(f"{where}.{name}", getattr(broker, name), source)
        if broker.role != "routing" and not broker.entrances():
            raise SettingError(
                f"{where}.port",
                broker.port,
                source,
                "clients would have no way into this broker",
                "Set its tls_port or wss_port, or open the plain port",
            )
        if broker.tier and broker.role != "routing":
            raise SettingError(
                f"{where}.tier",
                broker.tier,
                source,
                "this is not a routing broker, and only those are in tiers",
                'Leave it out, or set role = "routing"',
            )
        if broker.outward and broker.role == "routing":
            raise SettingError(
                f"{where}.outward",
                True,
                source,
                "brokers of all clusters have to reach a routing broker",
                "Leave it out, and let another machine route; edge brokers and standbys may be outward",
            )
        if broker.may_stand_by and broker.role != "edge":
            raise SettingError(
                f"{where}.may_stand_by",
                True,
                source,
                f"this is a {broker.role} broker, and only edge brokers are recruited",
                'Leave it out, or set role = "edge"',
            )
        if broker.advertise:
            _check_host(f"{where}.advertise", broker.advertise, source)
        _check_public(f"{where}.public", broker.public, source)


def _check_public(
    key: str,
    urls: tuple[str, ...],
    source: str,
    schemes: tuple[str, ...] = tuple(SCHEMES.values()),
    *,
    one_each: bool = True,
) -> None:
    remedy = f"Write each once, as one of {', '.join(f'{scheme}://host:port' for scheme in schemes)}"
    seen: set[str] = set()
    for url in urls:
        scheme, _, address = url.partition("://")
        problem = _url_problem(url, schemes, "an entrance for clients")
        if "@" in address:
            problem = "carries a name or a password"
        elif problem is None and one_each and scheme in seen:
            problem = f"there is another for {scheme}"
        elif problem is None and url != url.strip("/").lower():
            problem = "has capitals, or a slash at its end"
        if problem is not None:
            raise SettingError(key, url.rpartition("@")[2], source, problem, remedy)
        seen.add(scheme)


def _check_bridges(settings: Settings, origins: Mapping[str, str]) -> None:
    source = origins["bridges"]
    seen: set[str] = set()
    known = [each.id for each in settings.brokers]
    for index, bridge in enumerate(settings.bridges):
        where = f"bridges[{index}]"
        if bridge.name in seen:
            remedy = "Give each bridge its own"
            raise SettingError(f"{where}.name", bridge.name, source, "another bridge has this name", remedy)
        seen.add(bridge.name)
        if bridge.broker not in known:
            remedy = f"Name one of {', '.join(known)}"
            raise SettingError(f"{where}.broker", bridge.broker, source, "there is no such broker", remedy)
        broker = settings.broker(bridge.broker)
        if broker is not None and not broker.entrances():
            remedy = "Name a broker with a port"
            raise SettingError(f"{where}.broker", bridge.broker, source, "it takes no clients", remedy)
        prefix = bridge.prefix
        if prefix[0] in "$/" or prefix[-1] == "/" or any(sign in prefix for sign in "+#\0"):
            remedy = "Give a topic such as dds, or plant/dds"
            raise SettingError(
                f"{where}.prefix", prefix, source, "it cannot stand above other topics", remedy
            )


def _check_clusters(settings: Settings, origins: Mapping[str, str]) -> None:
    roles: dict[str, set[str]] = {}
    for broker in settings.brokers:
        roles.setdefault(broker.cluster, set()).add(broker.role)
    for cluster, present in roles.items():
        if "edge" not in present and not _is_cloud(present, roles):
            raise SettingError(
                "brokers",
                cluster,
                origins["brokers"],
                "this cluster has no edge broker, so no client could reach it, nor does it carry for other clusters",
                f'Add a broker with cluster = "{cluster}" and role = "edge"',
            )


def _is_cloud(present: set[str], roles: Mapping[str, set[str]]) -> bool:
    """Whether a cluster is there to carry messages between others."""
    return "routing" in present and any("edge" in others for others in roles.values())


def _check_ports(settings: Settings, origins: Mapping[str, str]) -> None:
    """No two listeners on one address; port 0 is chosen later and never clashes."""
    taken: list[tuple[str, str, int]] = []
    for key, host, port in _listeners(settings):
        for other, other_host, other_port in taken:
            overlap = host == other_host or host in WILDCARDS or other_host in WILDCARDS
            if port == other_port and overlap:
                source = origins.get(key, origins["brokers"])
                raise SettingError(
                    key,
                    port,
                    source,
                    f"{other} uses the same port",
                    "Give each its own, or 0 to have one chosen",
                )
        taken.append((key, host, port))


def _listeners(settings: Settings) -> Iterator[tuple[str, str, int]]:
    nats = settings.nats
    if not nats.urls and nats.port:
        for offset in range(nats.servers):
            yield "nats.port", nats.host, nats.port + offset
    for index, broker in enumerate(settings.brokers):
        for name, port in broker.ports().items():
            if port:
                yield f"brokers[{index}].{name}", broker.host_of(name), port
    for name, port in settings.door.ports().items():
        if port:
            yield f"door.{name}", settings.door.host, port
    for name in ("http_port", "https_port"):
        if (port := getattr(settings.feeds, name)) > 0:
            yield f"feeds.{name}", settings.feeds.http_host, port
    for section, measured in (("feeds", settings.feeds), ("pipeline", settings.pipeline)):
        if measured.metrics_port > 0:
            yield f"{section}.metrics_port", measured.metrics_host, measured.metrics_port


def _check_tls(settings: Settings, origins: Mapping[str, str]) -> None:
    tls = settings.tls
    for index, broker in enumerate(settings.brokers):
        for name in ("tls_port", "wss_port"):
            if name in broker.ports() and not tls.certificate:
                raise SettingError(
                    f"brokers[{index}].{name}",
                    broker.ports()[name],
                    origins["brokers"],
                    "a TLS listener needs a certificate",
                    "Set tls.certificate and tls.key",
                )
    for given, missing in (("certificate", "key"), ("key", "certificate")):
        if getattr(tls, given) and not getattr(tls, missing):
            raise SettingError(
                f"tls.{missing}",
                "",
                origins[f"tls.{missing}"],
                f"tls.{given} is of no use without it",
                f"Name the PEM file with the {missing}",
            )
    if tls.client_crl and tls.client_certificates == "none":
        raise SettingError(
            "tls.client_crl",
            tls.client_crl,
            origins["tls.client_crl"],
            "is of no use while clients show no certificates",
            "Set tls.client_certificates",
        )
    if tls.client_certificates != "none" and not tls.client_ca:
        raise SettingError(
            "tls.client_ca",
            "",
            origins["tls.client_ca"],
            "client certificates are asked for, but no authority is believed",
            'Name the PEM file with the authorities, or set tls.client_certificates to "none"',
        )


def _check_access(settings: Settings, origins: Mapping[str, str]) -> None:
    access, certificates = settings.access, settings.tls.client_certificates != "none"
    registers = access.registration != "off"
    if registers != bool(access.registered_rules):
        problem, remedy = (
            (
                "those who register would have no rules",
                "Name a file of rules; it may be empty: then they may do nothing",
            )
            if registers
            else ("is of no use while nobody registers", "Set access.registration, or leave it out")
        )
        raise SettingError(
            "access.registered_rules",
            access.registered_rules,
            origins["access.registered_rules"],
            problem,
            remedy,
        )
    if access.registration in ("open", "invited", "approved"):
        _check_clear_text(settings, origins)
    if settings.access.anonymous == "never" and not access.users and not certificates and not registers:
        raise SettingError(
            "access.anonymous",
            "never",
            origins["access.anonymous"],
            "there are neither users nor client certificates, so nobody could connect",
            "Set access.users to a password file, or tls.client_certificates",
        )


def _check_clear_text(settings: Settings, origins: Mapping[str, str]) -> None:
    """Somebody must be able to register: over TLS, or on this machine."""
    for broker in settings.brokers:
        for name in broker.ports():
            host = broker.host_of(name)
            if name in ("tls_port", "wss_port") or (name in ("port", "ws_port") and _is_here(host)):
                return
    raise SettingError(
        "access.registration",
        settings.access.registration,
        origins["access.registration"],
        "no broker has a port over TLS, so that passwords would travel in clear text",
        "Set tls.certificate, tls.key, and the tls_port of a broker",
    )


def _is_here(host: str) -> bool:
    """Whether clients of this machine reach a listener."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return found.is_loopback or found.is_unspecified


def _check_routing(settings: Settings, origins: Mapping[str, str]) -> None:
    routing = settings.routing
    if routing.most and routing.most < routing.least:
        raise SettingError(
            "routing.most",
            routing.most,
            origins["routing.most"],
            "is less than routing.least",
            f"Choose 0 or at least {routing.least}",
        )
    if routing.command and not routing.least:
        raise SettingError(
            "routing.command",
            " ".join(routing.command),
            origins["routing.command"],
            "is never run: tiers neither grow nor shrink",
            "Set routing.least, the members that a tier has at least",
        )


def _check_membership(settings: Settings, origins: Mapping[str, str]) -> None:
    membership = settings.membership
    for key, least in MEMBERSHIP_LEAST.items():
        value = getattr(membership, key)
        if 0 < value < least:
            where = f"membership.{key}"
            raise SettingError(
                where, value, origins[where], "is too small to mean anything", f"Choose 0 or at least {least}"
            )
    _check_most(settings, origins, 2 * membership.beat_ms, f"two heartbeats of {membership.beat_ms} ms")
    _check_most(settings, origins, membership.least_ms, "the shortest silence that counts (suspect_least_ms)")


def _check_most(settings: Settings, origins: Mapping[str, str], least: int, what: str) -> None:
    most = settings.membership.suspect_after_ms
    if most < least:
        raise SettingError(
            "membership.suspect_after_ms",
            most,
            origins["membership.suspect_after_ms"],
            f"is less than {what}",
            f"Choose at least {least}, or less for the other",
        )


def _check_recovery(settings: Settings, origins: Mapping[str, str]) -> None:
    recovery = settings.recovery
    if recovery.capacity and recovery.capacity_bytes_per_s:
        key = "recovery.capacity_bytes_per_s"
        problem = f"recovery.capacity is set too ({recovery.capacity}), and a broker has one capacity"
        remedy = "Set one of them to 0: capacity counts pairs, capacity_bytes_per_s counts data"
        raise SettingError(key, recovery.capacity_bytes_per_s, origins[key], problem, remedy)


def _check_scoring(settings: Settings, origins: Mapping[str, str]) -> None:
    scoring = settings.scoring
    source = origins["scoring.criteria"]
    seen: set[str] = set()
    for index, criterion in enumerate(scoring.criteria):
        where = f"scoring.criteria[{index}]"
        taken = criterion.name in (*RESOURCES, DELAY)
        if taken or criterion.name in seen:
            what = "a resource" if taken else "another criterion"
            raise SettingError(
                f"{where}.name", criterion.name, source, f"{what} has this name", "Give it one of its own"
            )
        seen.add(criterion.name)
        if not criterion.command[0] or any("\0" in part for part in criterion.command):
            raise SettingError(
                f"{where}.command",
                list(criterion.command),
                source,
                "names no program, or has a NUL character",
                "Give the program and its arguments, each a text",
            )
    if not any(scoring.weights().values()) and not any(each.weight for each in scoring.criteria):
        raise SettingError(
            "scoring.processor_weight",
            scoring.processor_weight,
            origins["scoring.processor_weight"],
            "all weights of resources and criteria are 0, so that there is no score",
            "Give one of them more, or set recovery.resources_weight to 0 if the score is not to count",
        )


def _check_feeds(settings: Settings, origins: Mapping[str, str]) -> None:
    feeds = settings.feeds
    _check_host("feeds.http_host", feeds.http_host, origins["feeds.http_host"])
    _check_host("feeds.metrics_host", feeds.metrics_host, origins["feeds.metrics_host"])
    _check_host("pipeline.metrics_host", settings.pipeline.metrics_host, origins["pipeline.metrics_host"])
    if feeds.https_port >= 0 and not settings.tls.certificate:
        raise SettingError(
            "feeds.https_port",
            feeds.https_port,
            origins["feeds.https_port"],
            "a TLS listener needs a certificate",
            "Set tls.certificate and tls.key",
        )
    if feeds.password and not feeds.username:
        raise SettingError(
            "feeds.username",
            "",
            origins["feeds.username"],
            "feeds.password is of no use without it",
            "Name the user",
        )


def _check_door(settings: Settings, origins: Mapping[str, str]) -> None:
    door = settings.door
    _check_host("door.host", door.host, origins["door.host"])
    if door.advertise:
        _check_host("door.advertise", door.advertise, origins["door.advertise"])
    _check_public(
        "door.public", door.public, origins["door.public"], tuple(DOOR_SCHEMES.values()), one_each=False
    )
    if door.tls_port >= 0 and not settings.tls.certificate:
        raise SettingError(
            "door.tls_port",
            door.tls_port,
            origins["door.tls_port"],
            "a TLS listener needs a certificate",
            "Set tls.certificate and tls.key",
        )
    clusters = {broker.cluster for broker in settings.brokers}
    if door.cluster and door.cluster not in clusters:
        raise SettingError(
            "door.cluster",
            door.cluster,
            origins["door.cluster"],
            "no broker belongs to this cluster",
            f"Name one of {', '.join(sorted(clusters))}, or leave it out",
        )
