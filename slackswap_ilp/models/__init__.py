"""Model families: from a few options to an instance."""
