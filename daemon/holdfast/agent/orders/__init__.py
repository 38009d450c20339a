"""Orders from the controller: the verbs, how each is carried out, and its outcome."""
