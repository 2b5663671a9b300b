"""The substrate behind ports.Store: NATS JetStream, and an in-memory twin."""
