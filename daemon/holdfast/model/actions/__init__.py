"""Actions, steps and their keys, and what restrains them."""
