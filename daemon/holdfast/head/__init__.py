"""The head node's processes (``python -m holdfast.head``) and their wiring: where adapters meet the core."""
