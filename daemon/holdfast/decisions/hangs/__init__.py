"""Hangs, stalls of a shared file system, and stragglers: found, and responded to. Pure."""
