"""What is said to a person: failures, names as messages show them, notes in their order, doubts."""
