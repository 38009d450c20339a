"""When the agent does what: its loop, the schedule of checks, random delays."""
