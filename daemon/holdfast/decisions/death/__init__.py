"""Verdict on dead nodes: witnesses (:mod:`domains`), evidence (:mod:`evidence`), consequences (:mod:`verdict`), and fencing of the old run
(:mod:`fencing`). Pure."""
