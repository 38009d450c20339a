"""Routes of operators' orders."""
