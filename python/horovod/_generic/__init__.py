"""What the frameworks' packages share: verbs over abstract tensors. A package adds access to its own tensors."""
