"""Shared parts of all asyncio processes: shells for machines, logs, start and stop."""
