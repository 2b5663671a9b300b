"""Bounds in bytes: what a client, a user and a whole broker may make a process hold.

``budget`` is the one scheme that every bound uses, and the weight that a message has in it; ``session_quota`` counts
stored sessions by user; ``stated_sum`` adds all bounds up, for ``tocsin doctor``. No machine: accounts that are asked
and told. The rooms ask here before they keep something, and give it back afterwards.
"""
