"""Decisions, by topic. Pure: a world in, a change out; no clock, no I/O (an import rule holds the whole folder to it).

:mod:`turn` is one turn of the control loop, stage by stage. :mod:`decide` puts the proposals together, :mod:`brakes.guard` withholds what
may not be done now, and :mod:`record` makes the rest a change of the store. A decision is repeated every turn until the world shows it
done; the key of its step makes sure that it is carried out once."""
