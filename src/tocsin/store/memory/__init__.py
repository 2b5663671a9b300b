"""``ports.Store`` in memory, for tests and networks without state: ``state`` is the reference of what a store promises.

``store`` wraps it for asyncio; the simulator drives it directly, with faults of its own. ``state`` has no event loop
and no clock.
"""
