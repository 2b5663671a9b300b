"""Agents: one for each feed that fetches its records itself. ``agent`` is what they share.

``folder`` follows files, ``kafka`` a topic of Kafka, ``messages`` streams of the network at QoS 1, and ``live`` at QoS
0. An agent hands its records to ``feeds.outlet``.
"""
