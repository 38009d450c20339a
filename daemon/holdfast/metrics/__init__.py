"""Views of the recorded events: MTTD, MTTR, what was lost. Pure."""
