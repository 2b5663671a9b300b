"""The identity of a broker: its name and addresses, its certificate, and the place of results."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from tocsin.broker.links.link import BROKER_ROLE, LinkSecurity
from tocsin.config import Broker, Settings
from tocsin.errors import TocsinError
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.ports import Table
from tocsin.runtime.security.credentials import PeerTls, certificates_directory, existing_credentials

LINK_SECRET: Final = "link-secret"  # the cell of the secret that links of release 0.1.0 showed each other


def info_of(configured: Broker) -> BrokerInfo:
    """A broker as the others know it."""
    return BrokerInfo(
        id=configured.id,
        cluster=configured.cluster,
        role=Role(configured.role),
        host=configured.links_at(),
        port=configured.link_port,
        entrances=tuple(
            Entrance(Scheme(scheme), address) for scheme, address in configured.entrances().items()
        ),
        may_stand_by=configured.may_stand_by,
        tier=configured.tier,
        outward=configured.outward,
    )


def results_directory(settings: Settings) -> Path:
    """Where the results of channels are, for brokers that reach the pipeline's storage."""
    return Path(settings.pipeline.storage or Path(settings.state) / "datasets").absolute() / "results"


def link_security(settings: Settings, broker: str) -> LinkSecurity:
    """How a broker proves over links who it is; ``OperatorError`` if it has no certificate of the network."""
    credentials = existing_credentials(certificates_directory(settings.state), BROKER_ROLE, broker)
    return LinkSecurity(settings.network, PeerTls(credentials))


async def forget_link_secret(table: Table) -> bool:
    """Remove the secret that release 0.1.0 left in the table of the network; whether that is settled.

    Call it once this broker has joined: brokers of that release are not let in from then on.
    """
    try:
        cell = await table.get(LINK_SECRET, fresh=True)
        if cell is not None:
            await table.delete(LINK_SECRET, revision=cell.revision)
            structlog.get_logger().info("the secret that links of release 0.1.0 had is removed")
    except TocsinError:
        return False  # another broker was quicker, or the store is away: look again
    return True
