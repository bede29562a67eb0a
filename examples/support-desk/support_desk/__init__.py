"""A shop's support desk: answers with a model, looks orders up, and knows its customers again."""
