"""Hangs, stalls of a shared file system, and stragglers: detection and response. Pure."""
