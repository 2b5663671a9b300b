"""Clients of the network, as the options of a bridge describe them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tocsin.bridge.settings import Tocsin
from tocsin.cli.target import find_broker, find_doors, password_of
from tocsin.client import AsyncClient
from tocsin.client.address import Server, read_servers
from tocsin.runtime.security.tls import client_context


def make_client(target: Tocsin, broker: str, state: Path) -> Any:
    """What makes clients of the network, as the options describe them."""
    secure = bool(target.cafile or target.certificate or target.key or target.insecure)
    servers: list[Server]
    if target.at and not broker:
        servers = [find_broker("", each, state, secure=secure) for each in target.at]
    else:
        first = find_broker(broker, "", state, secure=secure)
        servers = [first, *([] if broker else find_doors(state, first))]
    servers = list(read_servers(servers))
    context = None
    if any(each.secure for each in servers):
        context = client_context(
            authorities=target.cafile,
            certificate=target.certificate,
            key=target.key,
            insecure=target.insecure,
        )
    secret = password_of(target.user, target.password)
    return functools.partial(
        AsyncClient, servers, username=target.user or None, password=secret, tls=context, redial=True
    )
