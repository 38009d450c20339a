"""State as tensors, names and bytes."""
