"""The quorum service as the controller sees it."""
