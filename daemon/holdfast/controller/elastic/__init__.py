"""Elastic jobs and their quorum rooms: who is to be shut out and why, and what the service's record means for Holdfast's own. Pure."""
