"""How certain an answer is: metrics of Monte-Carlo draws, plans for drawing, and scores of probabilities."""
