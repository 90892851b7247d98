"""Statistics over seeds, and the figures, tables and pages made from run folders."""
