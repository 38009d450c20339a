"""Incidents and their transitions."""
