"""Shells for pure machines: they hand in events, carry out effects, keep timers, and ask the store.

A machine never sees asyncio; what is here sees nothing else of a machine than events and effects. ``shell`` runs any
machine, ``driver`` one with an address on the bus, ``line`` the one of an outgoing connection. ``tasks`` says what
happens when something fails.
"""
