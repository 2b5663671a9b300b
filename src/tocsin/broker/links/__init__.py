"""Links to other brokers: their own listener, the connections that are dialled, and what waits for them.

``link`` runs ``core.links.dialler`` over a socket, ``pool`` has one for each neighbour, ``relay`` passes on what goes
around, ``listener`` lets other brokers in. ``turned`` has connections to brokers that nobody can dial: they dial, then
both ends change places. ``probes`` measures the ways to others.
"""
