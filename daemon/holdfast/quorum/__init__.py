"""The quorum service: one rendezvous per job, where its replica groups meet before every step. Runs as its own process; see docs/quorum.md.

It speaks torchft 0.2.0's lighthouse protocol, never imports torch, and nothing else in the daemon imports it."""
