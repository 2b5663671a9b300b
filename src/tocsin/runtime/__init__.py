"""What all processes share: their start and stop, logs and metrics, and rooms for the ground that they stand on.

``machines`` has the shell around every machine, ``network`` is ``tocsin up``, ``security`` follows keys, users and
certificates, ``host`` weighs the machine, ``faults`` breaks things on request. ``documents`` reads files with bounds,
``extra`` says what a missing package is called. Knows no broker, coordinator or pipeline, except how to start one.
"""
