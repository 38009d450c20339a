"""The HTTP side of the controller: ingest from agents, views and verbs for people and programs (``docs/reference/api.md``).

It reads the store and memory and hands operators' words to the store; it holds no Slurm, provider or root rights."""
