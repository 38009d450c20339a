"""``python -m holdfast.controller``: what unit files of earlier releases start. New ones start ``python -m holdfast.head``."""

from holdfast.head.__main__ import main

if __name__ == "__main__":
    main()
