"""Pure machines: everything that decides, without a clock, randomness or a socket of its own."""
