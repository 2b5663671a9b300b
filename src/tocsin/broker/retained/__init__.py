"""Retained messages: this broker's copy of the table, the writes to it, and the replay to who subscribes."""
