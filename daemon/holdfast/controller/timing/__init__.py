"""When the loop does what, and how long it takes."""
