"""What layouts and the library share: nouns, manifests, names of runs, reading within bounds. Standard library only."""
