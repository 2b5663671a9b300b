"""The deterministic simulator: virtual time, a virtual network and every fault we can think of."""
