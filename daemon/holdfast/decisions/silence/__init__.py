"""Silent nodes: incidents of nodes whose agent does not report, one cause of several, whom to ask and whom to notify. Pure."""
