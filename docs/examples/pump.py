"""DDS endpoints of a pump: ``pump.py write`` measures it each 100 ms, ``pump.py read`` prints what it hears."""

import sys
import time
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import key
from cyclonedds.idl.types import int32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic


@dataclass
class Pump(IdlStruct, typename="plant.Pump"):
    name: str
    key("name")
    pressure: int32


topic = Topic(DomainParticipant(0), "Pump", Pump)
reliable = Qos(Policy.Reliability.Reliable(1_000_000_000), Policy.History.KeepAll)

if sys.argv[1:] == ["write"]:
    writer = DataWriter(topic.participant, topic, qos=reliable)
    for number in range(1_000_000):
        writer.write(Pump("north", 200 + number % 50))
        time.sleep(0.1)
else:
    reader = DataReader(topic.participant, topic, qos=reliable)
    while True:
        for pump in reader.take(N=100):
            if pump.sample_info.valid_data:
                print(pump.name, pump.pressure, flush=True)
        time.sleep(0.02)
