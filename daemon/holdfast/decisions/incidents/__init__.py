"""Incidents: opened from findings, and moved to the state that the world shows. Pure."""
