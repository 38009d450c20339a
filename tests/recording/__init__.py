"""Records what a release writes (store, agent's memory, wire) as fixtures for the next one: ``tests/fixtures/README.md``."""
