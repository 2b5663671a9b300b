"""Subscriptions to channels: which backend subscriptions a broker holds for its clients, and as whose standby.

``machine`` decides what to hold and what to let go; ``cells`` and ``standby_cells`` are how that is stored for the
pipeline to read. The results themselves are delivered by ``core.delivery``.
"""
