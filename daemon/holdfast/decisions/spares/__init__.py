"""Spares: the pool's size, which spare takes a node's place, refill, checks of idle spares. Pure."""
