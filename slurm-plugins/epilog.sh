#!/bin/sh
# Slurm's Epilog: the same question as before a job, so that a node that broke under one takes no other. See prolog.sh.
exec "$(dirname "$0")/prolog.sh"
