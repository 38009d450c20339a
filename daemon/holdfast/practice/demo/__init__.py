"""What ``./dev demo`` shows, checks and prints."""
