"""The promises that ``survival`` and its forms check, each with the planted bugs that break it.

``deliveries``, ``bequests`` (wills), ``ownership``, ``copies``, ``covers``, ``promotion`` and ``recovery`` check one
promise each; ``looking`` is how they look at brokers that run. Promises read, and change nothing.
"""
