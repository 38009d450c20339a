"""Where findings come from: kernel log, NVML, scheduled checks, GPUs, fabric, GRES, neighbours."""
