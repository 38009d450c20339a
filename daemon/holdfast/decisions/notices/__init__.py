"""Notices to people: what is sent now, in how many messages, and to whom. Pure."""
