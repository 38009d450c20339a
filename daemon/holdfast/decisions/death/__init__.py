"""Death as a verdict: who may witness it (:mod:`domains`), what counts (:mod:`evidence`), what follows (:mod:`verdict`), and whether the
old run is kept from writing (:mod:`fencing`). Pure."""
