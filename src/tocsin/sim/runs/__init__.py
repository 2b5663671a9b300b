"""Runs: ``scenario`` finds named worlds, ``runner`` takes one seed to its outcome, or many over several processes.

``invariants`` are those of every run and how a breach is reported, ``transcript`` tells a run as a story. Only
``runner`` starts processes.
"""
