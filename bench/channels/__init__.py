"""The cost of one execution of a channel: ``python -m bench channels``; a part: ``python -m bench.channels --only
…``.

Whole executions as the pipeline makes them, on its own classes with a real Spark; the same work in DuckDB and with a
query for each subscription; where the fixed cost goes; a hundred channels side by side; and a real network, end to
end.
"""

from bench.channels.run import main

__all__ = [
    "main",
]
