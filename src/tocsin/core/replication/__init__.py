"""Copies of a broker's clients (Γ in the REAPS paper) at its backups, so that a takeover needs no store.

Two machines: ``primary`` sends what changed to its backups, ``backup`` keeps the copies of those that it backs;
``signals`` has the events and effects of both. ``gamma`` is one copy, ``recipient`` what one backup is known to have.
The room decides nothing of a takeover: that is ``core.survival.takeover``.
"""
