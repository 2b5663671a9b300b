"""Local search for a plan: ``multistart`` improves several first plans of ``construction``, and keeps the best.

``locals`` and ``remotes`` are the two searches, for few subscriptions in sum and for a small largest R.
``neighbourhood`` has what every single change would save, ``relief`` changes that make room. Pure functions of a
draft.
"""
