"""Incidents: findings become incidents, and each is moved to where the world shows it to be. Pure."""
