"""Replay of a failure trace through the decisions that Holdfast makes: spares, brakes, lemons. Pure."""
