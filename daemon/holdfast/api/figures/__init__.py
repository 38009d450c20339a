"""Timings, losses and gauges: routes and what they read."""
