"""Pure machines: everything that decides, with no clock, chance or socket of its own."""
