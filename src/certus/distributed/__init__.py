"""One model on several processes: torchrun starts them, each passes its rows of the batch, rank 0 writes."""
