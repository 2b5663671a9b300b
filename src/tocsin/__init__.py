"""Tocsin tells people and machines what they asked to be told, and keeps telling them while parts of it fail."""

__version__ = "0.1.0"
