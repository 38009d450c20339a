"""Bodies of requests, and the nouns that they become."""
