"""Tokens of the API, and who gets one."""
