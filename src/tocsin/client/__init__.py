"""The Python SDK."""
