"""Findings: when one opens and closes, flapping, observe mode, and the report's wire form."""
