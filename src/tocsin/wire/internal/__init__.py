"""Messages between our own processes, and their bytes (MessagePack; ``model.versions`` knows each format's version).

``commands`` and ``notices`` are the coordinators' logs, ``control`` what brokers and coordinators say over the bus,
``cluster_messages`` gossip in a cluster that is cut off, ``replication`` copies for backups, ``summaries`` what the
planner asks for, ``relayed`` frames that a relay carries.
"""
