"""``tocsin explain door``: which broker a coordinator's door would give a client, and why, as the door itself says."""

from __future__ import annotations

import http.client
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from rich.console import Console

from tocsin.cli.layout import lay_out
from tocsin.client.address import read_address
from tocsin.errors import OperatorError
from tocsin.runtime.security.tls import client_context

DEADLINE_S: Final = 10.0
ANSWER_MAX_BYTES: Final = 4 << 20


def ask(entrances: tuple[tuple[str, str], ...], said: dict[str, str]) -> dict[str, Any]:
    """The answer of the first door that answers; ``OperatorError`` if none does, or it refuses."""
    problems = []
    for scheme, address in entrances:
        try:
            status, answer = _get(scheme, address, f"/v1/broker?{urlencode(said)}")
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            problems.append(f"{address}: {error}")
            continue
        if status != 200:
            raise OperatorError(
                f"the door says: {answer.get('error', status)}", "Look at `tocsin coordinator status`"
            )
        return answer
    if not problems:
        raise OperatorError("this network has no door", "Set door.port")
    raise OperatorError(f"no door answers ({'; '.join(problems)})", "Is the network up?")


def _get(scheme: str, address: str, target: str) -> tuple[int, dict[str, Any]]:
    server = read_address(f"{scheme}://{address}")
    if scheme == "mqtts":
        # The certificate is for clients; what is asked here is no secret, and neither is the answer.
        context = client_context(insecure=True)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            server.host, server.port, timeout=DEADLINE_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=DEADLINE_S)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, msgspec.json.decode(answer.read(ANSWER_MAX_BYTES), type=dict[str, Any])
    finally:
        connection.close()


def print_order(out: Console, answer: dict[str, Any]) -> None:
    """One line a broker, best first."""
    rows = [
        ["*" if number == 0 else "", each["broker"], address, each["reason"]]
        for number, (each, address) in enumerate(zip(answer["order"], answer["addresses"], strict=True))
    ]
    out.print(lay_out(["", "broker", "address", "why"], rows, [False] * 4, out.width))
