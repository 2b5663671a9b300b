"""What every asyncio process of ours shares: the driver that runs a machine, logs, start and stop."""
