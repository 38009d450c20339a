"""The node's agent: it collects findings, reports them, serves the node's jobs and carries out orders."""
