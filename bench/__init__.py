"""Measurements. Each module is one: ``python -m bench store``; all of them: ``make bench``."""
