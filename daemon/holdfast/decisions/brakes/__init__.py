"""Brakes: proposals that may be carried out now, when a brake trips, and what it holds back. Pure."""
