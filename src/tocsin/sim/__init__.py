"""The deterministic simulator: production machines under virtual time, with every fault, from one seed.

Here is the world: ``world`` runs the machines, each on a ``node``, over a ``network`` and a ``store`` that fail;
``chance``, ``schedule`` and ``latency`` say what happens when, and ``observation`` is how others look on. ``faults``
says what goes wrong, ``runs`` takes seeds to their outcomes, ``process`` has whole processes, ``scenarios`` what is
run.
"""
