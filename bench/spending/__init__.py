"""Clients that only spend: they never read, never acknowledge, and send the largest that is allowed, all at once.

``python -m bench.spending --minutes 60`` starts a network, sets them all on it, and prints the memory of each process
over time beside the sum that the settings allow, and what an honest client notices. ``attacks`` has the clients.
"""
