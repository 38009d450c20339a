"""The node's jobs: their socket, their statements, launchers and rendezvous."""
