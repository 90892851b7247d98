"""A trained model as an HTTP service: for people a page, for programs JSON."""
