"""What methods are made of: targets, steps, schedules, losses, reads, refinements and terms."""
