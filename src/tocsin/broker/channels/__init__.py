"""Channels in one broker: which backend subscriptions it holds, and the results that it reads for its clients.

``channels`` follows the definitions, ``backend_subscriptions`` runs ``core.channels``, ``result_reader`` reads what the
pipeline wrote and ``results`` gives each client its part.
"""
