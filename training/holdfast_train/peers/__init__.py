"""Groups that exchange state."""
