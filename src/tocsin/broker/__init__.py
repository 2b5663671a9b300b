"""The broker's asyncio shell: listener, connections, links, fan-out."""
