"""What commands share: options, answers, and how they are printed."""
