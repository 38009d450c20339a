"""Death as a verdict: who may witness it (:mod:`domains`), what counts (:mod:`evidence`), what follows (:mod:`verdict`), when nodes stopped
answering (:mod:`unreached`, :mod:`spans`), and when several are one cause (:mod:`brake`). Pure; no clock, no I/O.
``controller/silence.py`` moves the incidents."""
