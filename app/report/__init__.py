"""Labels and logits -> figures, and what people read of them: text, page, card, advice."""
