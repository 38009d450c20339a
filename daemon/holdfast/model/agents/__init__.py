"""What agents say: reports and answers."""
