"""The settings of bridges that `tocsin up` runs beside the brokers."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tocsin.config.section import Section

BRIDGES_MAX = 64
PATTERNS_MAX = 128
BRIDGE_NAME = r"^[a-z0-9][a-z0-9-]{0,31}$"

Kind = Literal["dds"]
Payload = Literal["cdr", "json"]
Pattern = Annotated[str, Meta(min_length=1, max_length=256)]


class Bridge(Section, frozen=True, kw_only=True):
    """A bridge beside a broker."""

    name: Annotated[
        str,
        Meta(
            pattern=BRIDGE_NAME,
            description="Name of the bridge; each bridge of a network has its own, on other machines as well.",
        ),
    ]
    broker: Annotated[
        str, Meta(min_length=1, max_length=63, description="The broker that it is a client of.")
    ]
    kind: Annotated[Kind, Meta(description="What it connects: DDS endpoints.")] = "dds"
    domain: Annotated[int, Meta(ge=0, le=232, description="DDS domain of the local network.")] = 0
    prefix: Annotated[
        str, Meta(min_length=1, max_length=256, description="MQTT topic above the DDS topics.")
    ] = "dds"
    payload: Annotated[
        Payload,
        Meta(description="`cdr`: samples as they are; `json`: for MQTT clients that are to read them."),
    ] = "cdr"
    allow: Annotated[
        tuple[Pattern, ...],
        Meta(max_length=PATTERNS_MAX, description="DDS topics to mirror, with `*` and `?`. Empty: all."),
    ] = ()
    deny: Annotated[
        tuple[Pattern, ...],
        Meta(max_length=PATTERNS_MAX, description="DDS topics to leave out, before `allow`."),
    ] = ()
    user: Annotated[
        str,
        Meta(
            max_length=256,
            description="User as whom it connects; the password is in TOCSIN_PASSWORD where `tocsin up` runs. "
            "Empty: without a name, which `access.anonymous` has to allow.",
        ),
    ] = ""

    def command(self, state: str) -> tuple[str, ...]:
        """The arguments of ``tocsin`` that run it."""
        words = ["bridge", "dds", "--name", self.name, "--broker", self.broker, "--state", state]
        words += ["--domain", str(self.domain), "--prefix", self.prefix, "--payload", self.payload]
        for option, patterns in (("--allow", self.allow), ("--deny", self.deny)):
            words += [word for each in patterns for word in (option, each)]
        return (*words, *(("--user", self.user) if self.user else ()))
