"""From nouns to the JSON of answers, and the pages of lists."""
