"""The bridge to DDS: endpoints of a local network are mirrored across the broker network, without being configured.

``mirror`` decides (a core), ``quality`` and ``mapping`` say what belongs together, ``space`` is the only module that
imports cyclonedds, ``main`` is the process.
"""
