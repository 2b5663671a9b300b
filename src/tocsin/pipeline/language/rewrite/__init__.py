"""From one query with parameters to one query for all subscriptions (``per_subscription``, ``per_subscription_limit``).

``constant_lifting`` lets like channels share a plan, ``spatial_join_keys`` makes joins of predicates that Spark would
try pair by pair. Trees in, trees out.
"""
