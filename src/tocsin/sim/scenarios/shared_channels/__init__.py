"""Groups that share the results of channels: a pipeline, three whole brokers, three groups, members that come and go.

The pipeline and the dataset are those of ``channels``, the members and their promises those of ``groups``: a result is
to a group what a message of the log is. A bystander subscribes to the same channels for itself, so that a broker may
hold a backend subscription for a client and for a group, for either, or for neither.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tocsin.config import Settings
from tocsin.config.budgets import LEAST_BYTES, Budgets
from tocsin.model.catalogue import encode_definition, key_of
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import EVERY_KIND, Profile
from tocsin.sim.process.restless import Subscriber
from tocsin.sim.process.stage import CHANNELS, NETWORK, Stage, configured
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.channels import look_through_often
from tocsin.sim.scenarios.channels.clients import ChannelClient
from tocsin.sim.scenarios.channels.dataset import CHANNEL, FILES, SimulatedFiles
from tocsin.sim.scenarios.channels.pipeline import Pipeline
from tocsin.sim.scenarios.groups.clients import Visitor
from tocsin.sim.scenarios.shared_channels.promises import promises
from tocsin.sim.world import World

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
COORDINATORS: Final = ("coordinator-1",)
PIPELINE: Final = "pipeline"
# The groups are told apart by their results, of which no two of them have any in common.
LASTING: Final = ("$share/g/$channel/Near/a", "$share/h/$channel/Near/b")
FLEETING: Final = "$share/v/$channel/Near/c"  # of visitors only
MEMBERS: Final = ("member/1", "member/2", "member/3")
STEADY: Final = "member/2"  # it stays where it is, so that nothing is put right by its coming back
STEADY_AFTER_US: Final = 4 * MILLION
VISITORS: Final = ("visitor/1", "visitor/2")
BYSTANDERS_NAMES: Final = ("$channel/Near/d", "$channel/Near/a", "$channel/Near/c")

FAULTS: Final = Profile(
    targets=(*BROKERS, PIPELINE),  # clients are the outside, which keeps its memory
    kinds=(*EVERY_KIND, ("store trouble", 3), ("lag", 4)),
)
TROUBLE_US: Final = 20 * MILLION
RESULTS_US: Final = 22 * MILLION  # until then there are new ones
SETTLE_US: Final = 30 * MILLION
SETTINGS: Final = Settings(
    network=NETWORK,
    brokers=tuple(configured(name) for name in BROKERS),
    # The least: what one group reads of the results is more than half of it, so that groups wait for each other.
    budgets=Budgets(groups_bytes=LEAST_BYTES, user_percent=50, client_percent=50),
)


class Bystander(ChannelClient):
    """A subscriber to the same channels; that it gets what it should is the matter of ``channels``."""

    def _say(self, text: str, **facts: object) -> None:
        """Say nothing: what is said is the members'."""


@scenario(
    "shared-channels",
    summary="results that groups share: a pipeline, three whole brokers, three groups, members that come and go",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(world: World) -> list[Invariant]:
    stage = Stage(world, SETTINGS)
    world.log(FILES)
    world.store.tables[CHANNELS.catalogue.name].put(key_of(CHANNEL), encode_definition(CHANNEL), 0)
    stage.add_coordinators(*COORDINATORS)
    stage.add_brokers(results=SimulatedFiles)
    world.add(PIPELINE, lambda _disk: Pipeline(PIPELINE, RESULTS_US))
    for address in MEMBERS:
        restless_us = STEADY_AFTER_US if address == STEADY else TROUBLE_US
        stage.add_client(address, partial(Subscriber, address, BROKERS, restless_us, LASTING, 1))
    for address in VISITORS:
        stage.add_client(address, partial(Visitor, address, BROKERS, TROUBLE_US, (FLEETING, *LASTING), 1))
    stage.add_client("bystander", partial(Bystander, "bystander", BROKERS, TROUBLE_US, BYSTANDERS_NAMES))
    look_through_often(world, BROKERS, TROUBLE_US + SETTLE_US)
    return [*promises(LASTING, FLEETING, VISITORS), AllRunning()]
