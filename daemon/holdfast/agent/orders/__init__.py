"""Orders from the controller: which verbs there are, how each is carried out, and its outcome."""
