"""The coordinator's shell: one process, of which several run and one leads (``core.coordination.coordinator``).

``main`` runs the machine over the store. Beside it, and never in its way: ``planning`` makes plans of backups in a
thread, ``standbys`` asks standbys for their scores, ``presence`` asks brokers for signs of life, ``status`` tells how
it is; ``door`` is the network's one address for clients. Brokers are reached over the bus and the log only.
"""
