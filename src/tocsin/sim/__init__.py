"""The deterministic simulator: production machines under virtual time, with every fault, from one seed.

``world`` is the shell that runs machines; ``scenario`` registers what to run, ``runner`` runs it, and
``invariants`` is what it is held to. ``probe`` is a machine for tests.
"""
