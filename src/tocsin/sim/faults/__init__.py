"""The faults of a run as data: ``kinds`` says which there are, ``plan`` draws them from the seed before the run begins.

``compound`` has those with a course: they come and go, or strike one after the other. Knows the network, the nodes'
lives and the store of ``sim`` by name only; ``sim.world`` carries faults out.
"""
