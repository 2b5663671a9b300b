"""The HTTP look-up at a coordinator's door, for clients that do not speak MQTT, and for operators.

    GET /v1/broker?client=ID&home=BROKER&scheme=mqtt&near=CLUSTER&wants=FILTER…   the right broker, and why
    GET /v1/brokers                                                               all brokers, and those that are lost
    GET /healthz                                                                  200 if it knows the network

Answers are JSON; fields may be added, so ``v`` stays 1. One request a connection, with a bound of bytes. A look-up is
remembered by nobody: it does not count as a visit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import h11
import msgspec

from tocsin.core.door.callers import NAME_MAX_CHARS, Caller, wanted
from tocsin.core.door.choice import Candidate, Directory
from tocsin.core.survival.homes import HOME_MAX_CHARS
from tocsin.model.network import BrokerInfo, Scheme

HEAD_MAX_BYTES: Final = 16 << 10
VERSION: Final = 1
FIELDS_MAX: Final = 64

Order = Callable[[Caller], list[Candidate]]
Reply = tuple[int, dict[str, Any]]


class Lookup:
    """One HTTP connection: bytes in, the bytes of one answer out."""

    def __init__(self, network: Directory, order: Order, *, ready: bool, source: str, secure: bool) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX_BYTES)
        self._size = 0  # bytes that came
        self._network = network
        self._order = order
        self._ready = ready
        self._source = source
        self._default = Scheme.MQTTS if secure else Scheme.MQTT

    def feed(self, data: bytes) -> bytes | None:
        """The answer, once the request is whole; then the connection is to be closed."""
        self._size += len(data)
        if self._size > HEAD_MAX_BYTES:
            return self._send(431, {"error": f"the request is larger than {HEAD_MAX_BYTES >> 10} KiB"})
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                return None
            if not isinstance(event, h11.Request):
                return b""
            status, answer = self._reply(event.method, event.target)
            return self._send(status, answer, head=event.method == b"HEAD")
        except h11.RemoteProtocolError as error:
            refusal: dict[str, Any] = {"error": f"not a request: {error}"}
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                return self._send(error.error_status_hint, refusal)
            return b""

    def _send(self, status: int, answer: dict[str, Any], *, head: bool = False) -> bytes:
        body = msgspec.json.encode({"v": VERSION, **answer}) + b"\n"
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"connection", b"close"),
        ]
        parts = (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=b"" if head else body),
            h11.EndOfMessage(),
        )
        return b"".join(self._http.send(part) or b"" for part in parts)

    def _reply(self, method: bytes, target: bytes) -> Reply:
        if method not in (b"GET", b"HEAD"):
            return 405, {"error": "use GET"}
        try:
            parts = urlsplit(target.decode("latin-1"))
        except ValueError as error:
            return 400, {"error": str(error)}
        if parts.path == "/healthz":
            return (200 if self._ready else 503), {"ready": self._ready, "brokers": len(self._network.able)}
        if parts.path == "/v1/brokers":
            return 200, brokers(self._network)
        if parts.path != "/v1/broker":
            return 404, {"error": "there are /v1/broker, /v1/brokers and /healthz; MQTT has the same port"}
        try:
            said = parse_qs(parts.query, max_num_fields=FIELDS_MAX)
            caller = self._caller(said)
        except ValueError as error:
            return 400, {"error": str(error)}
        return self._assign(caller)

    def _caller(self, said: dict[str, list[str]]) -> Caller:
        unknown = set(said) - {"client", "home", "scheme", "near", "wants"}
        if unknown:
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}; use client, home, scheme, near, wants")
        scheme = said.get("scheme", [self._default.value])[-1]
        if scheme not in tuple(Scheme):
            raise ValueError(f"scheme={scheme}: use mqtt, mqtts, ws or wss")
        return Caller(
            client=said.get("client", [""])[-1][:NAME_MAX_CHARS],
            source=self._source,
            scheme=Scheme(scheme),
            home=said.get("home", [""])[-1][:HOME_MAX_CHARS],
            near=said.get("near", [""])[-1][:NAME_MAX_CHARS],
            wants=wanted(said.get("wants", [])),
        )

    def _assign(self, caller: Caller) -> Reply:
        found = [each for each in self._order(caller) if each.address(caller.scheme) is not None]
        if not found:
            return 503, {"error": f"no broker serves clients over {caller.scheme} now; try again"}
        return 200, {
            "broker": found[0].broker.id,
            "cluster": found[0].broker.cluster,
            "reason": found[0].reason,
            "scheme": caller.scheme,
            "addresses": [each.address(caller.scheme) for each in found],
            "order": [{"broker": each.broker.id, "reason": each.reason} for each in found],
        }


def brokers(network: Directory) -> dict[str, Any]:
    """All brokers with their addresses, and those that are lost with their stand-ins."""
    return {
        "brokers": [_shown(each, network) for _, each in sorted(network.living.items())],
        "lost": [
            {"broker": name, "cluster": place.info.cluster, "stands_in": place.by}
            for name, place in sorted(network.vacancies.items())
        ],
    }


def _shown(info: BrokerInfo, network: Directory) -> dict[str, Any]:
    return {
        "broker": info.id,
        "cluster": info.cluster,
        "role": info.role,
        "load": network.loads.get(info.id, 0) / 1_000,
        "takes_clients": info.id in network.able,
        "addresses": [f"{each.scheme}://{each.address}" for each in info.entrances],
    }
