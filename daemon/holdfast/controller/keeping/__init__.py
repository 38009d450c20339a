"""What is kept between turns and written down: figures, totals, steps that were not taken."""
