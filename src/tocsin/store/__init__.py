"""The substrate behind ``ports.Store``: NATS JetStream, its twin in memory, and the servers that we start ourselves.

``jetstream`` has logs, tables and the bus over the connection of ``nats``; ``memory`` makes the same promises without
a server; ``servers`` plans the embedded servers and the rights of each role. At the root is what every store shares:
``rules`` (which names it takes), ``service`` and ``subscription`` (its bus), ``process_lease`` and ``retention`` (over
the ports). May import ``core`` and what is below it.
"""
