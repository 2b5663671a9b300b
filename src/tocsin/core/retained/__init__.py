"""Retained messages: the copy of the table that every broker has, and the order in which it is written.

``machine`` decides which version of a message a broker has (``kept``), and has its few signals with it; ``topics``
finds retained messages by filter and counts their bytes; ``write_order`` keeps the writes of one topic in their order.
The room knows nothing of sessions.
"""
