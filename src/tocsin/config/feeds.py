"""The settings of the feeder: what fills datasets."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tocsin.config.section import Section


class Feeds(Section, frozen=True, kw_only=True):
    """The process that feeds datasets, and its HTTP endpoint."""

    http_host: Annotated[str, Meta(description="Address on which the feeder listens for HTTP.")] = "127.0.0.1"
    http_port: Annotated[
        int,
        Meta(ge=-1, le=65_535, description="Port for HTTP. -1: none; 0: choose a free one."),
    ] = 8480
    https_port: Annotated[
        int,
        Meta(
            ge=-1,
            le=65_535,
            description="Port for HTTP over TLS, with the certificate of `tls`. -1: none; 0: choose a free one.",
        ),
    ] = -1
    body_max_bytes: Annotated[
        int,
        Meta(
            ge=1_024,
            le=4 << 20,
            description="Largest body of one request to a feed; one append to the store.",
        ),
    ] = 4 << 20
    waiting_max_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            le=1 << 32,
            description="Bytes of request bodies that are incomplete or wait for the store; at least one body. "
            "Further requests are asked to retry.",
        ),
    ] = 64 << 20
    connections_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="HTTP connections at once; beyond it the one goes that has been silent for longest.",
        ),
    ] = 500
    connections_per_address: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="HTTP connections at once from one address (IPv6: one /64 network); more are asked to "
            "retry. Connections from this machine do not count.",
        ),
    ] = 100
    request_deadline_s: Annotated[
        float, Meta(ge=1.0, le=3_600.0, description="How long a request may take to arrive.")
    ] = 30.0
    live_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="QoS 0 messages of one feed that may wait for the store; beyond it the oldest are dropped "
            "and counted.",
        ),
    ] = 10_000
    folder_poll_s: Annotated[
        float,
        Meta(
            ge=0.1,
            le=3_600.0,
            description="Time between two looks at a feed's folder; a file is taken when it is the same at two "
            "looks that are a second apart, or more.",
        ),
    ] = 1.0
    folders: Annotated[
        tuple[str, ...],
        Meta(
            max_length=64,
            description="Directories below which feeds may read files (`FROM FOLDER`); `.` is the feeder's working "
            "directory. The state directory is never read.",
        ),
    ] = (".",)
    username: Annotated[
        str,
        Meta(
            max_length=128,
            description="User as which the feeder subscribes at brokers, for QoS 0 messages. Empty: none.",
        ),
    ] = ""
    metrics_host: Annotated[
        str, Meta(description="Address on which the feeder's figures can be fetched; anybody there may.")
    ] = "127.0.0.1"
    metrics_port: Annotated[
        int,
        Meta(
            ge=-1,
            le=65_535,
            description="Port of the feeder's figures for Prometheus, at `/metrics`. -1: none; 0: choose a free one.",
        ),
    ] = -1
    password: Annotated[str, Meta(max_length=512, description="Password of that user.")] = ""
    broker_ca: Annotated[
        str,
        Meta(
            max_length=4_096,
            description="PEM file with the authorities whose certificates the feeder believes of brokers that have no "
            "plain port. Empty: those of this machine.",
        ),
    ] = ""
