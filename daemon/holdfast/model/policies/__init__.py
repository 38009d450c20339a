"""The site's policy."""
