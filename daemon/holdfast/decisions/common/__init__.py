"""Questions that several topics ask of a world: nodes, jobs, elastic and heterogeneous jobs, budgets, consent. Pure."""
