"""Decisions: incidents, nodes, jobs, spares and policy in; actions with reasons out. Pure: no clock, no I/O.

Each module answers one question: :mod:`contain` (must the node go out of service?), :mod:`hurt` (which jobs does a fault hurt?),
:mod:`recover` (how do they get back to work?), :mod:`hangs` (where does a job stand that hangs?), :mod:`allow` (may a node serve a job
again that was kept off it?), :mod:`dead` (who can say whether a silent node lives?), :mod:`page` (what is an operator told of
silence?), :mod:`stays_down` (and of nodes that stay DOWN?), :mod:`repair` (what does the node need?), :mod:`tidy` (what of ours is
left behind?), :mod:`orphans` (which machines did nobody's book make?), :mod:`refill` (is the spare pool as large as it should be?),
:mod:`outputs` (whose output is to be read?),
:mod:`upkeep` (which spares are to be checked?), :mod:`maintain` (does Slurm show the maintenance windows?). A decision is repeated every
cycle until the world shows it done; the intent's key makes sure that it is carried out once."""

from holdfast.controller.decide.decision import Decision, decide

__all__ = ["Decision", "decide"]
