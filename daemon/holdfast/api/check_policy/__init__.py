"""The policy of checks: routes that read and change it."""
