"""Notices to people: what is told now, in how many messages, and to whom. Pure."""
