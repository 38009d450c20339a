"""Queries on a world shared by several topics: nodes, jobs, elastic and heterogeneous jobs, budgets, consent. Pure."""
