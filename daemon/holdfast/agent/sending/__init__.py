"""Sending of reports: written to disk first, sent until the controller has them; the answers."""
