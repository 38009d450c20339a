"""Repair of nodes: drain, rungs of the ladder, replacement, validation, return to service, cleanup. Pure."""
