"""Whole processes in the simulator: what runs in production on asyncio, sockets and NATS runs here on virtual ones.

A process is a machine like any other to the world (``machine``): an event goes in, its event loop (``loop``) runs until
nothing is left to do, and what it asked for comes out as effects. Its store (``store``) and its sockets (``loop``) turn
into effects and events of the kernel, so that every fault of the simulator reaches it. ``wires`` is the network between
processes: connections that keep order or break, and the bus.
"""
