"""Planning: what failures cost a training run, how many spares it needs, and how often to save. Pure.

Closed forms with their sources, a simulation that confirms them, and tables. ``holdfast plan`` shows them; docs/planning.md explains
them."""
