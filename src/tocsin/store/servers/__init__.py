"""The NATS servers that ``tocsin up`` brings along: ``embedded`` plans them, ``programs`` knows which builds may run.

``roles`` is the table of what each kind of process may do in the store; the servers' configuration is made from it.
``testing`` starts servers on loopback for tests and benchmarks. Only ``testing`` starts a process.
"""
