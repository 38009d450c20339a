"""DCGM through its command ``dcgmi``: what it answers (3.x and 4.x), and what its errors call for."""
