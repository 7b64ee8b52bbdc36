"""What the frameworks' packages share: verbs over abstract tensors. A package adds how to look at its own tensors."""
