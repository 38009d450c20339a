"""The cluster's own certificate authority: makes it, renews what it signed, and says what strict verification would refuse.

Used by the command line and the doctor alone. It needs the package ``cryptography`` (extra ``controller``), which no node has."""
