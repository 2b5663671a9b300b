"""``ports.Store`` in memory, for tests and networks without state: ``state`` is the reference of what a store promises.

``store`` wraps it for asyncio; the simulator drives it directly, with faults of its own. ``index`` finds a log's
positions by subject. ``state`` and ``index`` have no event loop and no clock.
"""
