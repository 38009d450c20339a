"""``holdfast run``: start the processes of one replica group (or of any command) on one node, and exit when all have ended.

It runs under srun, once on each node of the group, with the rights of the job's user. Standard library only."""
