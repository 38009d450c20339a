"""Brakes: which of the proposals may be done now, when a brake trips, and what one holds back. Pure."""
