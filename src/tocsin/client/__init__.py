"""The Python client."""

from tocsin.client.connection import Client, Message

__all__ = ["Client", "Message"]
