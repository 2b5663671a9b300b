"""The feeder: a process of its own that fills datasets, so that records are accepted while Spark is down.

It watches the definitions of feeds and runs an agent for each, which reads its source (messages of the network, HTTP,
a folder, Kafka) and appends records to the log of feeds. The pipeline takes them from there.
"""
