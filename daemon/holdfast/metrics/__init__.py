"""Views of the recorded events: MTTD, MTTR, losses. Pure."""
