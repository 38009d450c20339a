"""Commands that order something."""
