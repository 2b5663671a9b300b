"""Retained messages: this broker's copy of the network's table, the writes to it, and the replay to new subscribers.

``table`` runs ``core.retained.machine`` on a watch of the table, ``writer`` writes one topic's messages in their order
with compare-and-set, ``replay`` sends them to a subscriber, no more at a time than it takes. Knows the store and a
client's outlet, and nothing of sessions.
"""
