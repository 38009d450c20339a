"""Routes that read: nodes, incidents, jobs, spares, notices, status."""
