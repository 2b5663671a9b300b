"""One load generator for all brokers: the bytes they speak, crowds of clients, the loads, and what they measured."""
