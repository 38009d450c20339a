"""The JSON of answers: what clients of the API read."""
