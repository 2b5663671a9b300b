"""Shared subscriptions at QoS 1 and 2: one group, its members in many brokers, and the choice of a member for each
message.

The truth of a group is one cell of the store, written with compare-and-set (``cell``, ``draft``, ``stored_group``).
``machine`` is one broker's part in one group. Messages at QoS 0 are shared without it (``broker.shared.qos0``).
"""
