"""Who a broker is: as others know it, how it proves that, and where results are."""

from __future__ import annotations

from pathlib import Path

from tocsin.broker.links import BROKER_ROLE, LinkSecurity
from tocsin.config import Broker, Settings
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.runtime.credentials import PeerTls, certificates_directory, existing_credentials


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
    )


def results_directory(settings: Settings) -> Path:
    """Where the results of channels are, for brokers that reach the pipeline's storage."""
    return Path(settings.pipeline.storage or Path(settings.state) / "datasets").absolute() / "results"


def link_security(settings: Settings, broker: str) -> LinkSecurity:
    """How a broker proves over links who it is; ``OperatorError`` if it has no certificate of the network."""
    credentials = existing_credentials(certificates_directory(settings.state), BROKER_ROLE, broker)
    return LinkSecurity(settings.network, PeerTls(credentials))
