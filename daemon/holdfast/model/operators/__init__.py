"""What operators order and accept."""
