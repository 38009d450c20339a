"""Advice, one module per subject. Pure."""
