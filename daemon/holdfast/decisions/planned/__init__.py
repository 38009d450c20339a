"""Planned stops: a provider's announcements, saving before them, steps before capacity ends. Pure."""
