"""Shared subscriptions in one broker: ``group`` runs ``core.shared`` for one group, ``groups`` has them all and
their budget, and ``qos0`` gives each QoS 0 message to one member.
"""
