"""The parts of ``bench.query``: workloads, the peers, the picture."""
