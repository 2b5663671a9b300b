"""The coordinator's asyncio shell."""
