"""Routes that agents call."""
