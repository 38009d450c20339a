"""Elastic jobs: their size, growing and shrinking, evictions, admission to a rendezvous, its record. Pure."""
