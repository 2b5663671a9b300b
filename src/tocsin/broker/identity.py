"""Who a broker is: as others know it, by what brokers of a network know each other, and where results are."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from tocsin.config import Broker, Settings
from tocsin.errors import Conflict
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.ports import Table

SECRET_KEY: Final = "link-secret"


def info_of(configured: Broker) -> BrokerInfo:
    """A broker as the others know it."""
    return BrokerInfo(
        id=configured.id,
        cluster=configured.cluster,
        role=Role(configured.role),
        host=configured.reachable_at(),
        port=configured.port,
        entrances=tuple(
            Entrance(Scheme(scheme), address) for scheme, address in configured.entrances().items()
        ),
    )


def results_directory(settings: Settings) -> Path:
    """Where the results of channels are, for brokers that reach the pipeline's storage."""
    return Path(settings.pipeline.storage or Path(settings.state) / "datasets").absolute() / "results"


async def network_secret(table: Table) -> bytes:
    """The secret by which brokers of one network know each other: made by whoever needs it first."""
    cell = await table.get(SECRET_KEY)
    if cell is None:
        made = secrets.token_hex(32).encode()
        try:
            await table.compare_and_set(SECRET_KEY, made, revision=0)
            return made
        except Conflict:
            cell = await table.get(SECRET_KEY)
            assert cell is not None, "somebody made it just now, and nobody deletes it"
    return cell.value
