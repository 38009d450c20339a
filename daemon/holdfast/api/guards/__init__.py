"""What is asked of a request before its route runs."""
