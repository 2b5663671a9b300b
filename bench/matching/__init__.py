"""What ``bench.query`` is made of: workloads, the peers, the picture."""
