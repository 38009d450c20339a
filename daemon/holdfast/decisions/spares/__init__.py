"""Spares: the pool's size, choice of a spare, refill, checks of idle spares. Pure."""
