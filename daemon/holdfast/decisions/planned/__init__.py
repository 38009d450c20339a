"""Planned stops: what a provider announces, saving before it, what is done before capacity ends. Pure."""
