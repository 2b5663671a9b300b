"""What a connection may do, as its session asks: rights change, and are looked up each time."""

from __future__ import annotations

from abc import abstractmethod

from tocsin.core.access import Rights
from tocsin.core.session import Session


class Permitted:
    """A part of each connection."""

    _session: Session

    @abstractmethod
    def rights(self) -> Rights:
        """What it may do just now."""

    def rights_changed(self) -> None:
        """What the client may do is no longer what it was."""
        if self.rights().open:
            self._session.permit()
        else:
            self._session.permit(publish=self._may_publish, subscribe=self._may_subscribe)

    def _may_publish(self, topic: str) -> bool:
        return self.rights().may_publish(topic)

    def _may_subscribe(self, topic_filter: str) -> bool:
        return self.rights().may_subscribe(topic_filter)

    def may_receive(self, topic: str) -> bool:
        return self.rights().may_receive(topic)
