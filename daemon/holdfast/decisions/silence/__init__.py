"""Silent nodes: incidents of nodes whose agent does not report, common causes, witnesses and notifications. Pure."""
