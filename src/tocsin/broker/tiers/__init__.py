"""Carrying into other clusters over tiers: what is held while slots move, and the shell of ``core.tiers.ways``."""
