"""The control loop and its edge: it observes the world, takes a turn (:mod:`holdfast.decisions`), commits, and wakes the actor."""
