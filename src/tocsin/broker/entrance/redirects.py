"""Clients that say where they are at home: they learn where they are and could go, and the participant of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import structlog
from mqtt5 import PublishPacket

from tocsin.core.coordination.participant.signals import GuestCame, GuestWent
from tocsin.core.machine import Event
from tocsin.core.session.signals import Accepted, Authenticate
from tocsin.core.survival.homes import (
    GUEST,
    HOME_MAX_CHARS,
    PROPERTY_BROKER,
    PROPERTY_HOME,
    PROPERTY_SERVER,
    PROPERTY_STAY,
    PROPERTY_VERSION,
    SERVERS_TOPIC,
)
from tocsin.core.survival.refuges import reference
from tocsin.model.network import BrokerInfo, Scheme
from tocsin.model.versions import UNREADABLE


class Redirects:
    """Tells clients where to go if this broker is lost, and sends those on whose home is gone.

    ``destinations`` has the servers for clients of a scheme, best first; ``found_at`` the stand-in of a lost broker, or
    the standby that has its name by now: a client that knows the old address finds neither by itself.
    """

    def __init__(
        self,
        own: BrokerInfo,
        post: Callable[[Event], None],
        destinations: Callable[[Scheme], list[str]],
        found_at: Callable[[str], BrokerInfo | None] = lambda broker: None,
    ) -> None:
        self._own = own
        self._found_at = found_at
        self._post = post
        self._destinations = destinations
        self._here: dict[str, Scheme] = {}  # those who said where they are at home → how they came

    def sent_on(self, asked: Authenticate, scheme: Scheme) -> str | None:
        """Where a client is waited for, whose home is gone; None if it may come in here."""
        said = dict(asked.user_properties)
        home = said.get(PROPERTY_HOME)
        if home is None or PROPERTY_STAY in said or _problem(said) is not None:
            return None
        there = self._found_at(home)
        return None if there is None or there.id == self._own.id else reference((there,), scheme, 0)

    def came(self, accepted: Accepted, scheme: Scheme) -> tuple[tuple[str, str], ...]:
        """A client has come: what to tell it."""
        said = dict(accepted.user_properties)
        home = said.get(PROPERTY_HOME)
        if not home or len(home) > HOME_MAX_CHARS:
            return ()
        if (problem := _problem(said)) is not None:
            structlog.get_logger().warning(
                "a client's home is passed over", client=accepted.client_id, problem=problem
            )
            return ((PROPERTY_VERSION, GUEST.text),)
        client = accepted.client_id
        self._here[client] = scheme
        self._post(GuestCame(client=client, home=home, scheme=scheme, cause=accepted.cause))
        servers = tuple((PROPERTY_SERVER, each) for each in self._destinations(scheme))
        return ((PROPERTY_VERSION, GUEST.text), (PROPERTY_BROKER, self._own.id), *servers)

    def news(self) -> Iterator[tuple[str, PublishPacket]]:
        """The redirect targets to tell the connected clients."""
        for client, scheme in self._here.items():
            yield client, PublishPacket(SERVERS_TOPIC, " ".join(self._destinations(scheme)).encode())

    def knows(self, client: str) -> bool:
        """Whether a client is here that said where it is at home: it goes where it is sent."""
        return client in self._here

    def went(self, client: str) -> None:
        if client in self._here:
            del self._here[client]
            self._post(GuestWent(client=client, cause=f"{self._own.id}:went {client}"))


def _problem(said: dict[str, str]) -> str | None:
    """Why what a client says of its home is not understood; None if it is."""
    try:
        GUEST.check(said.get(PROPERTY_VERSION))
    except UNREADABLE as error:
        return str(error)
    return None
