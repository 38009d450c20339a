"""What the kernel shows of the node's processes, jobs and users; read with bounds and with their users' rights."""
