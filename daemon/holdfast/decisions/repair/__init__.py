"""Repair of nodes: drain, the ladder's rungs, replacement, validation, return to service, cleanup. Pure."""
