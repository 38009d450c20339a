"""Scenarios of ``./dev demo``: what they run, check and print."""
