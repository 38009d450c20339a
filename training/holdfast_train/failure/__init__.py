"""What ends or restarts a group: lost peers, evictions, errors."""
