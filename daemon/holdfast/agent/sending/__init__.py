"""Reports on their way: written to disk first, sent until the controller has them; the answers."""
