"""Where a network keeps what concerns datasets, feeds and channels; the same words for pipeline, brokers and agents.

None of the logs has a bound by which it would forget what nobody has read: the pipeline trims them. ``feeds`` when the
records are in their datasets, ``notices`` when no stored session needs them and the results are past their time.
"""

from __future__ import annotations

import msgspec

from tocsin.model.catalogue import CATALOGUE
from tocsin.model.results import NOTICES, SUBSCRIPTIONS
from tocsin.ports import LogSpec, TableSpec


class ChannelNames(msgspec.Struct, frozen=True):
    """Tables, logs and subjects of one network."""

    network: str

    @property
    def catalogue(self) -> TableSpec:
        """Definitions: written by the pipeline, watched by brokers."""
        return TableSpec(f"{self.network}-{CATALOGUE}")

    @property
    def subscriptions(self) -> TableSpec:
        """Backend subscriptions: written by brokers, watched by the pipeline."""
        return TableSpec(f"{self.network}-{SUBSCRIPTIONS}")

    @property
    def progress(self) -> TableSpec:
        """The pipeline's own: how far channels and feeds are, and who runs the pipeline."""
        return TableSpec(f"{self.network}-pipeline")

    @property
    def notices(self) -> LogSpec:
        """Notices of results: written by the pipeline, followed by brokers."""
        return LogSpec(f"{self.network}-{NOTICES}", (self.notices_subject,))

    @property
    def feeds(self) -> LogSpec:
        """Records of feeds: written by agents, followed by the pipeline."""
        return LogSpec(f"{self.network}-feeds", (f"{self.network}.feeds.>",))

    @property
    def notices_subject(self) -> str:
        return f"{self.network}.{NOTICES}"

    def feed_subject(self, feed: str) -> str:
        """The subject of one feed's records; in lower case, as names are case-insensitive."""
        return f"{self.network}.feeds.{feed.lower()}"

    def sql(self, user: str) -> str:
        """Where a user asks for SQL; the store's servers let nobody else ask there."""
        return f"{self.network}.pipeline.sql.{user}"

    def service(self, verb: str) -> str:
        """Where the pipeline answers: ``sql``, ``status``, ``results``, ``run``."""
        return f"{self.network}.pipeline.{verb}"
