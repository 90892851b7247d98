"""Which pictures are worth a person's next minute: to label, to correct, to accept."""
